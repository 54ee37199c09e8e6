#include "tools/checkpoint/tensor_blocks.hpp"

#include <algorithm>
#include <cstring>

#include "checkpoint/checksum.hpp"
#include "tessera/base/half.hpp"

namespace tessera::tools {
namespace {

template <class Half>
void widen_to(std::span<const std::byte> from, std::span<float> to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    Half value;
    std::memcpy(&value.bits, from.data() + 2 * i, 2);
    to[i] = value.to_float();
  }
}

template <class Half>
void round_to(std::span<const float> from, std::vector<std::byte>& to) {
  to.resize(2 * from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    const Half value = Half::from_float(from[i]);
    std::memcpy(to.data() + 2 * i, &value.bits, 2);
  }
}

}  // namespace

std::span<const std::byte> TensorBlocks::at(std::size_t block) {
  const std::uint64_t first = block * kChecksumBlock;
  buffer_.resize(std::min<std::uint64_t>(kChecksumBlock, tensor_.bytes - first));
  reader_.read(tensor_, first, buffer_);
  reader_.check_block(tensor_, block, buffer_);
  return buffer_;
}

bool is_float(std::string_view dtype) {
  return dtype == "F32" || dtype == "BF16" || dtype == "F16";
}

void to_floats(std::string_view dtype, std::span<const std::byte> from, std::span<float> to) {
  if (dtype == "BF16") { return widen_to<bfloat16>(from, to); }
  if (dtype == "F16") { return widen_to<float16>(from, to); }
  if (!to.empty()) { std::memcpy(to.data(), from.data(), to.size_bytes()); }
}

void from_floats(std::string_view dtype, std::span<const float> from, std::vector<std::byte>& to) {
  if (dtype == "BF16") { return round_to<bfloat16>(from, to); }
  if (dtype == "F16") { return round_to<float16>(from, to); }
  const auto bytes = std::as_bytes(from);
  to.assign(bytes.begin(), bytes.end());
}

}  // namespace tessera::tools
