#include "checkpoint/file_values.hpp"

#include <cstring>

#include "tessera/base/half.hpp"

namespace tessera::checkpoint {
namespace {

// Half i may lie in the memory of float i or after it: it is read before it is overwritten.
template <class Half>
void widen(std::span<const std::byte> raw, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    Half value;
    std::memcpy(&value.bits, raw.data() + 2 * i, 2);
    values[i] = value.to_float();
  }
}

template <class Half>
void round_to(std::span<const float> values, std::span<std::byte> bytes) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Half value = Half::from_float(values[i]);
    std::memcpy(bytes.data() + 2 * i, &value.bits, 2);
  }
}

}  // namespace

std::optional<DType> dtype_named(std::string_view name) noexcept {
  if (name == "F32") { return DType::fp32; }
  if (name == "BF16") { return DType::bf16; }
  if (name == "F16") { return DType::fp16; }
  return {};
}

std::size_t file_bytes_of(DType dtype) noexcept {
  return dtype == DType::fp32 ? 4 : 2;
}

void read_values(DType dtype, std::span<float> values,
                 const std::function<void(std::span<std::byte> raw)>& read) {
  const std::span raw = std::as_writable_bytes(values).last(values.size() * file_bytes_of(dtype));
  read(raw);
  widen_values(dtype, raw, values);
}

void widen_values(DType dtype, std::span<const std::byte> raw, std::span<float> values) {
  if (dtype == DType::bf16) { return widen<bfloat16>(raw, values); }
  if (dtype == DType::fp16) { return widen<float16>(raw, values); }
  if (!values.empty()) { std::memmove(values.data(), raw.data(), raw.size()); }
}

void narrow_values(DType dtype, std::span<const float> values, std::vector<std::byte>& bytes) {
  bytes.resize(values.size() * file_bytes_of(dtype));
  if (dtype == DType::bf16) { return round_to<bfloat16>(values, bytes); }
  if (dtype == DType::fp16) { return round_to<float16>(values, bytes); }
  if (!values.empty()) { std::memcpy(bytes.data(), values.data(), bytes.size()); }
}

}  // namespace tessera::checkpoint
