// A training step waits for its samples, or the samples wait for the step. Workers load ahead of the
// consumer into a bounded queue; how many, how far ahead and how long they live is the tuning of a loader.
#include "lab/experiment.h"

#include <algorithm>

#include "core/cpus.h"
#include "loader.h"

namespace fathom::lab::data_loader {
namespace {

// A worker for each CPU that the consumer leaves, but at least one and at most eight.
const int kConsumerAndWorkers = std::clamp(host_threads(), 2, 9);

}  // namespace

const Experiment<Samples> samples{
    .question =
        "What do workers, prefetching and persistence give a data loader, and how long does its consumer "
        "wait?",
    .limit    = Limit::none,  // the disk, the decoder and the consumer share it (notes.md)
    .axes     = {{"samples", {128}}, {"epochs", {4}}},
    .check_at = {{"samples", {0, 1, 2, 7, 8, 9, 33}}, {"epochs", {1, 2}}},
    .variants =
        {
            {.id         = "in_line",
             .techniques = {},
             .idea       = "load, step, load, step: one thread",
             .prepare    = prepare_in_line},
            {.id         = "workers_per_epoch",
             .launch     = workers_per_epoch,
             .techniques = {"loader_workers"},
             .idea       = "a worker for each other CPU, made anew for each epoch; a slot each",
             .prediction = predict::ratio(1.7),
             .threads    = kConsumerAndWorkers},
            {.id         = "persistent_workers",
             .techniques = {"loader_workers"},
             .idea       = "the same workers for all epochs; a slot each",
             .prediction = predict::ratio(1.8),
             .threads    = kConsumerAndWorkers,
             .prepare    = prepare_persistent_workers},
            {.id         = "prefetch_4",
             .techniques = {"loader_workers", "prefetching"},
             .idea       = "persistent workers, four slots each",
             .prediction = predict::ratio(2),
             .threads    = kConsumerAndWorkers,
             .prepare    = prepare_prefetch_4},
            {.id         = "eight_workers",
             .techniques = {"loader_workers", "prefetching"},
             .idea       = "eight persistent workers however few CPUs, four slots each",
             .prediction = predict::ratio(2),
             .threads    = 9,
             .prepare    = prepare_prefetch_4},
        },
    .catalog = {"storage-004"},
};
FATHOM_REGISTER(samples);

}  // namespace fathom::lab::data_loader
