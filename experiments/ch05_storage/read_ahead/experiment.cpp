// A sequential reader gets its next bytes before it asks for them, because the kernel reads ahead. A program
// can switch that off, lengthen it, or ask for a whole file at once.
#include "lab/experiment.h"
#include "read_ahead.h"

namespace fathom::lab::read_ahead {

const Experiment<BlockScan> read_ahead{
    .question =
        "What does read-ahead give a sequential scan through the page cache, and what does advice add?",
    .limit    = Limit::none,  // a virtual disk has no stable rate (notes.md)
    .axes     = {{"read", {64 << 10}}, {"blocks", {4096}}},
    .check_at = {{"read", {64 << 10}}, {"blocks", {0, 1, 15, 16, 17, 61, 257}}},
    .variants =
        {
            {.id         = "kernel_default",
             .launch     = kernel_default,
             .techniques = {},
             .idea       = "no advice: read-ahead as the device is set"},
            {.id         = "off",
             .launch     = off,
             .techniques = {"prefetching"},
             .idea       = "POSIX_FADV_RANDOM: each read of 64 KiB waits for the device",
             .prediction = predict::ratio(0.4)},
            {.id         = "sequential",
             .launch     = sequential,
             .techniques = {"prefetching"},
             .idea       = "POSIX_FADV_SEQUENTIAL: twice the window",
             .prediction = predict::ratio(1.1)},
            {.id         = "will_need",
             .launch     = will_need,
             .techniques = {"prefetching"},
             .idea       = "POSIX_FADV_WILLNEED: the whole file at once",
             .prediction = predict::ratio_at_least(1.2)},
        },
    .catalog = {"storage-006"},
};
FATHOM_REGISTER(read_ahead);

}  // namespace fathom::lab::read_ahead
