// Sampled tokens can be drafted too. Rejection sampling keeps the most of them; drawing by the same random
// numbers keeps fewer, and the answer then depends on nothing but the target. What is the difference?
#include "lab/experiment.h"

#include "drafted_texts.h"

namespace fathom::lab::rejection_sampling {
namespace {

const Experiment<DraftedTexts> experiment{
    .question =
        "Sampled tokens, four drafted: how many does a step keep by rejection sampling, by block "
        "verification, "
        "with four candidates for one place, and when target and drafter draw by the same random numbers?",
    .axes     = {{"apart", {0.6, 0.25, 1.2}}, {"trials", {1024}}},
    .quick    = {{"trials", {256}}},
    .check_at = {{"trials", {0, 1, 31, 100}}},
    .variants =
        {
            {.id         = "chain",
             .launch     = chain,
             .techniques = {"speculative_decoding", "rejection_sampling"},
             .idea       = "each token is kept with probability min(1, p / q), else replaced"},
            {.id         = "block",
             .launch     = block,
             .techniques = {"speculative_decoding", "rejection_sampling"},
             .idea       = "the longest prefix that passes as a whole",
             .prediction = predict::ratio(0.85)},
            {.id         = "siblings",
             .launch     = siblings,
             .techniques = {"speculative_decoding", "rejection_sampling", "multi_draft"},
             .idea       = "four candidates for one place, drawn without replacement",
             .prediction = predict::ratio(1.0)},
            {.id         = "coupled_cdf",
             .launch     = coupled_cdf,
             .techniques = {"speculative_decoding"},
             .idea       = "the engine's: one number, found in both sums of probabilities",
             .prediction = predict::ratio(1.5)},
            {.id         = "coupled_gumbel",
             .launch     = coupled_gumbel,
             .techniques = {"speculative_decoding"},
             .idea       = "the same Gumbel numbers in both races",
             .prediction = predict::ratio(0.2)},
        },
    .catalog = {"specdec-002", "specdec-006"},
};
FATHOM_REGISTER(experiment);

}  // namespace
}  // namespace fathom::lab::rejection_sampling
