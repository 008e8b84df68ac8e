// docs/dualpipe.svg: what exposed messages of experts add to a pipeline's step, and what DualPipe hides of
// them. Modelled (book/pipeline_model.h), not measured.
//   dualpipe_figure FILE            writes it
//   dualpipe_figure FILE --check    fails if the file is not what the model gives
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "book/pipeline_model.h"
#include "report/svg.h"
#include "tests/write_or_check.h"

namespace fathom::report {
namespace {

using book::OpKind;
using book::Pipeline;
using book::PipelineModel;
using book::PipelineOp;
using book::Schedule;

constexpr int kStages = 4, kMicrobatches = 8;
constexpr double kForward = 1, kBackward = 2, kMessages = 1;  // of a pass: dispatch and combine
constexpr double kWidth = 1000, kLeft = 8, kRight = kWidth - 8, kLane = 22;

struct Panel {
  std::string name;
  Pipeline pipeline;
  double messages;  // of a pass that nothing hides
};

const std::array<Panel, 3> kPanels = {{
    {"dense layers, 1F1B",
     {.schedule     = Schedule::one_f_one_b,
      .stages       = kStages,
      .microbatches = kMicrobatches,
      .forward      = kForward,
      .backward     = kBackward},
     0},
    {"layers of experts, 1F1B: each pass waits for dispatch and combine",
     {.schedule     = Schedule::one_f_one_b,
      .stages       = kStages,
      .microbatches = kMicrobatches,
      .forward      = kForward + kMessages,
      .backward     = kBackward + kMessages},
     kMessages},
    {"layers of experts, DualPipe: a forward and a backward pass at once hide each other's messages",
     {.schedule     = Schedule::dualpipe,
      .stages       = kStages,
      .microbatches = kMicrobatches,
      .forward      = kForward + kMessages,
      .backward     = kBackward + kMessages,
      .both         = std::max(kForward + kBackward, 2 * kMessages)},
     kMessages},
}};

void draw_op(Drawing& drawing, const PipelineOp& op, double messages, const Scale& time, double top) {
  const double left = time.at(op.begin), right = time.at(op.end) - 1, height = kLane - 4;
  const auto title = [&](const char* what, int microbatch) {
    return fmt::format("{} of micro-batch {}, {:g} to {:g}", what, microbatch, op.begin, op.end);
  };
  if (op.kind == OpKind::forward_and_backward) {
    drawing.bar({left, top}, right - left, height / 2, {"share", title("forward pass", op.microbatch)});
    drawing.bar({left, top + height / 2}, right - left, height / 2,
                {"other", title("backward pass", op.backward_microbatch)});
    return;
  }
  const bool forward = op.kind == OpKind::forward, weights = op.kind == OpKind::weight_gradient;
  const double exposed = weights ? 0 : messages;  // gradients of weights send nothing
  const double middle  = time.at(op.end - exposed) - (exposed > 0 ? 0 : 1);
  drawing.bar(
      {left, top}, middle - left, height,
      {forward ? "share" : "other", title(forward ? "forward pass" : "backward pass", op.microbatch)});
  if (exposed > 0)
    drawing.bar({middle, top}, right - middle, height, {"quartile", title("messages", op.microbatch)});
}

std::string figure() {
  const auto model = std::make_unique<PipelineModel>();
  double longest   = 0;
  for (const Panel& panel : kPanels) {
    model->run(panel.pipeline);
    longest = std::max(longest, model->total());
  }
  constexpr double kPanel = kStages * kLane + 40;
  const Scale time{{0, longest}, kLeft + 62, kRight, false};
  Drawing drawing("dualpipe", kWidth, kPanels.size() * kPanel + 36, "DualPipe beside a dense model, modelled",
                  fmt::format("{} stages, {} micro-batches; a lane for each stage, time to the right.",
                              kStages, kMicrobatches));
  double y = 18;
  for (const Panel& panel : kPanels) {
    model->run(panel.pipeline);
    drawing.text({kLeft, y}, panel.name, {"label"});
    drawing.text({kRight, y},
                 fmt::format("{:g} units of time, {:.0f} % of them a stage waits", model->total(),
                             100 * model->bubble()),
                 {"quiet", Anchor::end});
    for (int32_t stage = 0; stage < kStages; ++stage) {
      const double top = y + 8 + stage * kLane;
      drawing.text({kLeft, top + 14}, fmt::format("stage {}", stage), {"quiet"});
      drawing.bar({time.from, top}, time.to - time.from, kLane - 4, {"lane", ""});
      for (int32_t i = 0; i < model->ops(stage); ++i)
        draw_op(drawing, model->op(stage, i), panel.messages, time, top);
    }
    y += kPanel;
  }
  double x        = kLeft;
  const auto item = [&](const char* style, const std::string& name) {
    drawing.bar({x, y - 4}, 14, 12, {style, ""});
    drawing.text({x + 20, y + 6}, name, {"key"});
    x += 20 + text_width(name, 11) + 24;
  };
  item("share", "forward pass");
  item("other", "backward pass");
  item("quartile", "dispatch and combine, exposed");
  item("lane", "waiting");
  drawing.text({kRight, y + 6},
               fmt::format("modelled: forward {:g}, backward {:g}, messages {:g} a pass", kForward, kBackward,
                           kMessages),
               {"quiet", Anchor::end});
  return drawing.standalone();
}

}  // namespace
}  // namespace fathom::report

int main(int argc, char** argv) {
  return fathom::write_or_check(argc, argv, "dualpipe_figure", fathom::report::figure());
}
