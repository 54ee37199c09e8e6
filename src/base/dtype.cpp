#include "tessera/base/dtype.hpp"

#include <fmt/format.h>

#include <array>

#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"

namespace tessera {
namespace {

constexpr std::array kDTypes{DType::fp32, DType::bf16, DType::fp16, DType::fp64};

}  // namespace

std::string_view to_string(DType dtype) noexcept {
  switch (dtype) {
    case DType::fp32:
      return "fp32";
    case DType::bf16:
      return "bf16";
    case DType::fp16:
      return "fp16";
    case DType::fp64:
      return "fp64";
  }
  return "unknown";
}

DType parse_dtype(std::string_view name) {
  std::string known;
  for (const DType dtype : kDTypes) {
    if (name == to_string(dtype)) { return dtype; }
    known += known.empty() ? "" : ", ";
    known += to_string(dtype);
  }
  throw ConfigError(fmt::format("unknown dtype \"{}\"; known are {}", shown(name), known));
}

}  // namespace tessera
