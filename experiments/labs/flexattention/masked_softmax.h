// The kernel between the products of dense_scores.
#pragma once

#include "experiments/labs/flexattention/packed_documents.h"

namespace fathom::lab::flexattention {

// weights = softmax(scale scores + bias) over the tokens of the row's document up to the row, 0 elsewhere;
// and lse. For rows first_row .. first_row + rows of the kGroup heads of a key-value head.
void masked_softmax(const PackedDocuments& p, int64_t first_row, int64_t rows, int64_t kv_head,
                    StreamRef stream);

}  // namespace fathom::lab::flexattention
