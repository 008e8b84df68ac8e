// A flash disk is a parallel machine behind a queue. A program that waits for each read before the next keeps
// one of its many units busy, and pays the full round trip to the device for every block.
#include "lab/experiment.h"
#include "io_uring.h"

namespace fathom::lab::io_uring {

const Experiment<BlockSums> block_sums{
    .question =
        "How many small reads does one thread get from the disk with a queue of 32 instead of one at a time?",
    .limit    = Limit::none,  // a virtual disk has no stable rate (notes.md)
    .axes     = {{"blocks", {512}}},
    .check_at = {{"blocks", {0, 1, 2, 31, 32, 33, 61, 257}}},
    .variants =
        {
            {.id = "blocking", .launch = blocking, .techniques = {}, .idea = "pread of 4 KiB, one at a time"},
            {.id         = "queue_depth_32",
             .techniques = {"async_io"},
             .idea       = "io_uring: 32 reads in flight, each completion starts the next",
             .prediction = predict::ratio_at_least(8),
             .prepare    = prepare_queue_depth_32,
             .needs      = {machine::Feature::io_uring}},
        },
    .catalog = {"storage-005"},
};
FATHOM_REGISTER(block_sums);

}  // namespace fathom::lab::io_uring
