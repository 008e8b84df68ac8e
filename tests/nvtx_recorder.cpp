// A tool for NVTX (NVTX_INJECTION64_PATH), as nsys and ncu are: writes each range that this process opens and
// closes to $NVTX_RECORD, a line each, so that tests/nvtx_test.py sees what they would see.
//   push fathom ch08
//   pop fathom
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

FILE* file() {
  static FILE* const opened = [] {
    const char* path = std::getenv("NVTX_RECORD");
    return path ? std::fopen(path, "a") : nullptr;
  }();
  return opened;
}

void write(const char* what, nvtxDomainHandle_t domain, const char* name) {
  if (!file()) return;
  std::fprintf(file(), "%s %s %s\n", what, reinterpret_cast<const std::string*>(domain)->c_str(), name);
  std::fflush(file());  // the process may end without exit handlers
}

// The handle of a domain is ours to choose: its name.
nvtxDomainHandle_t create(const char* name) {
  return reinterpret_cast<nvtxDomainHandle_t>(new std::string(name));
}
int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  write("push", domain, event->message.ascii);
  return 0;
}
int pop(nvtxDomainHandle_t domain) {
  write("pop", domain, "");
  return 0;
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table_of) {
  const auto* callbacks   = static_cast<const NvtxExportTableCallbacks*>(table_of(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int functions  = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &functions)) return 0;
  if (functions <= NVTX_CBID_CORE2_DomainCreateA) return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA]     = reinterpret_cast<NvtxFunctionPointer>(create);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE2_DomainRangePop]    = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}
