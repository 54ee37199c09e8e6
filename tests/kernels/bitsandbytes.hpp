#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/support.hpp"
#include "tessera/base/dtype.hpp"

// What record_bitsandbytes.py has recorded, and how to compare with it.
namespace tessera::kernels::bitsandbytes {

/// One tensor in NF4. Arrays are hexadecimal digits, large ones hashes.
struct Recorded {
  std::string_view name;
  std::int64_t elems;
  DType dtype;
  std::uint32_t seed;
  bool special;  ///< whether some blocks are zero, of one value, or subnormal
  std::uint64_t codes;
  std::uint64_t absmax;
  std::uint32_t offset;
  std::string_view absmax_codes;
  std::string_view scales;
  std::uint64_t dequantised[3];  ///< to fp32, bf16, fp16
};

/// The tensor's values, before they are rounded to its dtype.
inline Floats values(const Recorded& recorded) {
  std::uint32_t state = recorded.seed;
  Floats numbers;
  for (std::int64_t i = 0; i < recorded.elems; ++i) {
    std::int32_t total = 0;
    for (int draw = 0; draw < 4; ++draw) {
      state = state * 1664525U + 1013904223U;
      total += static_cast<std::int32_t>(state >> 16U);
    }
    const auto block = static_cast<int>(i / 64);
    float number = std::ldexp(static_cast<float>(total - 131070), -16 + block % 5 - 8);
    const int kind = recorded.special ? block % 12 : 0;
    if (kind == 3) { number = 0.0F; }
    if (kind == 7) { number = -0.25F; }
    if (kind == 10) { number = std::ldexp(number, -125); }
    numbers.push_back(number);
  }
  return numbers;
}

/// FNV-1a of 64 bits of the elements' bytes.
template <class T>
std::uint64_t hash_of(const std::vector<T>& elems) {
  std::uint64_t state = 0xCBF29CE484222325U;
  for (const std::byte byte : std::as_bytes(std::span{elems})) {
    state = (state ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001B3U;
  }
  return state;
}

inline std::vector<std::uint32_t> words(std::string_view digits) {
  std::vector<std::uint32_t> all;
  for (std::size_t i = 0; i < digits.size(); i += 8) {
    all.push_back(
        static_cast<std::uint32_t>(std::stoul(std::string{digits.substr(i, 8)}, nullptr, 16)));
  }
  return all;
}

inline std::vector<std::uint8_t> bytes(std::string_view digits) {
  std::vector<std::uint8_t> all;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    all.push_back(
        static_cast<std::uint8_t>(std::stoul(std::string{digits.substr(i, 2)}, nullptr, 16)));
  }
  return all;
}

}  // namespace tessera::kernels::bitsandbytes
