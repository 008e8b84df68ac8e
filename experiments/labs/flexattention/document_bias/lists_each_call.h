// The variants that list the visible blocks in each call.
#pragma once

#include "experiments/labs/flexattention/packed_documents.h"

namespace fathom::lab::flexattention {

FATHOM_CUDA_LAUNCHER void lists_each_call(const PackedDocuments& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER Call graph(const PackedDocuments&, StreamRef);

}  // namespace fathom::lab::flexattention
