// NVTX loads this library as a profiler. It records the ranges of each thread.
#include <nvtx3/nvToolsExt.h>

#include <string>
#include <vector>

namespace {

constexpr std::size_t kMost = 10'000;

std::vector<std::string>& recorded() {
  thread_local std::vector<std::string> calls;
  if (calls.size() >= kMost) { calls.clear(); }  // limits memory on threads that no test reads
  return calls;
}

int push(const char* name) {
  recorded().push_back(std::string{"+"} + name);
  return 0;
}
int pop() {
  recorded().emplace_back("-");
  return 0;
}

}  // namespace

extern "C" {

void* tessera_nvtx_recorded() {
  return &recorded();
}

/// NVTX calls this after it has opened the library.
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0 ||
      size <= NVTX_CBID_CORE_RangePop) {
    return 0;
  }
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(&push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(&pop);
  return 1;
}
}
