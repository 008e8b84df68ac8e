// A disk serves many reads at once. How many it needs in flight depends on their size: small reads are bound
// by the reads a second of the device, and large ones by its bytes a second, which fewer of them reach.
#include "lab/experiment.h"
#include "queue_depth.h"

namespace fathom::lab::queue_depth {

const Experiment<Records> records{
    .question = "How many random reads must be in flight, of 4 KiB and of 64 KiB, before more gain nothing?",
    .limit    = Limit::none,  // a virtual disk has no stable rate (notes.md)
    .axes     = {{"depth", {16, 1, 4, 64}}, {"record", {4 << 10, 64 << 10}}, {"records", {256}}},
    .check_at = {{"depth", {1, 4, 64}}, {"record", {4 << 10, 64 << 10}}, {"records", {0, 1, 3, 61, 64, 65}}},
    .variants =
        {
            {.id         = "one_at_a_time",
             .launch     = one_at_a_time,
             .techniques = {},
             .idea       = "pread, wait, next: the same at every depth"},
            {.id         = "queue",
             .techniques = {"async_io"},
             .idea       = "io_uring with `depth` reads in flight",
             .prediction = predict::ratio_at_least(4),
             .prepare    = prepare_queue,
             .needs      = {machine::Feature::io_uring}},
        },
    .catalog = {"storage-006"},
};
FATHOM_REGISTER(records);

}  // namespace fathom::lab::queue_depth
