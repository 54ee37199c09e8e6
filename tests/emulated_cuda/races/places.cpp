#include "emulated_cuda/races/places.hpp"

#include <link.h>

#include "emulated_cuda/misuse.hpp"
#include "emulated_cuda/races/record.hpp"

namespace emulated_cuda::races {
namespace {

struct CodeOfModule {
  std::uintptr_t begin = 0;
  unsigned dropped_bits = 0;
};

int look_for_code(dl_phdr_info* object, std::size_t /*bytes*/, void* found) {
  const auto here = reinterpret_cast<std::uintptr_t>(&look_for_code);
  std::uintptr_t end = 0;
  bool contains = false;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) { continue; }
    const std::uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
    end = segment.p_vaddr + segment.p_memsz;
    contains = contains || (here >= begin && here < begin + segment.p_memsz);
  }
  if (!contains) { return 0; }
  auto& code = *static_cast<CodeOfModule*>(found);
  code.begin = object->dlpi_addr;
  while (end >> code.dropped_bits >> Record::kCodeBits != 0) { ++code.dropped_bits; }
  return 1;
}

const CodeOfModule code_of_module = [] {
  CodeOfModule found;
  dl_iterate_phdr(&look_for_code, &found);
  return found;
}();

}  // namespace

std::uint32_t code_number(const void* code) {
  if (code == nullptr) { return 0; }
  return static_cast<std::uint32_t>(
      (reinterpret_cast<std::uintptr_t>(code) - code_of_module.begin) >>
      code_of_module.dropped_bits);
}

std::string place_of_number(std::uint32_t number) {
  const std::uintptr_t code =
      code_of_module.begin + (std::uintptr_t{number} << code_of_module.dropped_bits);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that was one before
  return place_of(reinterpret_cast<const void*>(code));
}

}  // namespace emulated_cuda::races
