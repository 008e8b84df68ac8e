#include "cuda/capture_error.h"

namespace fathom {

std::string capture_error_text(cudaError_t error) {
  switch (error) {
    case cudaErrorStreamCaptureUnsupported:
      return "a captured step is only recorded, so it cannot wait for the GPU, ask whether it is done, or "
             "allocate memory: do that before or after the capture, and read values that decide about a step "
             "on the device, or run this step without a graph";
    case cudaErrorStreamCaptureInvalidated:
      return "an earlier call had broken the capture, and its error was ignored: check the errors of all "
             "calls of the step";
    case cudaErrorStreamCaptureMerge:
      return "an event would join two captures: capture both streams in one, from a fork of one of them";
    case cudaErrorStreamCaptureUnmatched:
      return "the capture was ended on a stream that did not begin it: begin and end it on the same stream";
    case cudaErrorStreamCaptureUnjoined:
      return "another stream took part and still has work of its own at the end: record an event there, and "
             "let the captured stream wait for it";
    case cudaErrorStreamCaptureIsolation:
      return "the step waits for an event that was recorded outside the capture: wait for it before the "
             "capture begins";
    case cudaErrorStreamCaptureImplicit:
      return "the step uses the legacy default stream, which waits for all others: give every call a stream, "
             "and create streams with cudaStreamNonBlocking";
    case cudaErrorCapturedEvent:
      return "an event recorded during a capture never happens, so nothing outside can wait for it: record "
             "one after the launch of the graph";
    case cudaErrorStreamCaptureWrongThread:
      return "the capture was begun by another thread: begin and end it on the same one";
    default:
      return "";
  }
}

}  // namespace fathom
