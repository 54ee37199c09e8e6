#include "device/cpu/instructions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/environment.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#include "tessera/device/product_library.hpp"

namespace tessera::device {
namespace {

constexpr const char* kVariable = "TESSERA_CPU";

bool has(InstructionSet set) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  switch (set) {
    case InstructionSet::avx512:
      return avx512;
    case InstructionSet::avx512_bf16:
      return avx512 && __builtin_cpu_supports("avx512bf16");
    default:
      return true;
  }
#else
  return set == InstructionSet::avx2 || set == InstructionSet::native;
#endif
}

Choices own_choices() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("intel") != 0 ? Choices::intel : Choices::amd;
#else
  return Choices::amd;
#endif
}

std::optional<InstructionSet> set_of(std::string_view word) {
  if (word == "avx2") { return InstructionSet::avx2; }
  if (word == "avx512") { return InstructionSet::avx512; }
  if (word == "avx512-bf16") { return InstructionSet::avx512_bf16; }
  if (word == "native") { return InstructionSet::native; }
  return {};
}

std::optional<Choices> choices_of(std::string_view word) {
  if (word == "intel") { return Choices::intel; }
  if (word == "amd") { return Choices::amd; }
  return {};
}

void check_set(InstructionSet set, std::string_view word) {
  if (!has(set)) {
    throw ConfigError{
        fmt::format("{} asks for {}, which this processor lacks: take avx2, or leave it unset",
                    kVariable, word)};
  }
#ifdef __AVX512F__
  if (set == InstructionSet::avx2) {
    throw ConfigError{
        fmt::format("{} asks for avx2, but this build uses AVX-512 everywhere: build with "
                    "-DTESSERA_ARCH=x86-64-v3, or leave it unset",
                    kVariable)};
  }
#endif
}

/// Sets `value` unless an earlier word of the same kind has.
template <class T>
void set_once(std::optional<T>& value, T to, std::string_view text) {
  if (value) {
    throw ConfigError{
        fmt::format("{}={}: two words of one kind", kVariable, shown(std::string{text}))};
  }
  value = to;
}

}  // namespace

Instructions parse_instructions(std::string_view text) {
  std::optional<InstructionSet> most;
  std::optional<Choices> choices;
  std::size_t end = 0;
  for (std::size_t first = 0; !text.empty() && first <= text.size(); first = end + 1) {
    end = std::min(text.find(',', first), text.size());
    const std::string_view word = text.substr(first, end - first);
    if (const auto set = set_of(word)) {
      check_set(*set, word);
      set_once(most, *set, text);
    } else if (const auto maker = choices_of(word)) {
      set_once(choices, *maker, text);
    } else {
      throw ConfigError{fmt::format(
          "{}={}: '{}' is none of avx2, avx512, avx512-bf16, native, and none of intel, amd",
          kVariable, shown(std::string{text}), shown(std::string{word}))};
    }
  }
  return {most.value_or(InstructionSet::native), choices.value_or(own_choices())};
}

const Instructions& instructions() {
  static const Instructions found = parse_instructions(environment(kVariable).value_or(""));
  return found;
}

bool uses_avx512() {
  return instructions().allows(InstructionSet::avx512) && has(InstructionSet::avx512);
}

}  // namespace tessera::device

namespace tessera {

std::string describe_instructions() {
  const device::Instructions& used = device::instructions();
  const char* set = "all that the processor has";
  if (used.most == device::InstructionSet::avx2) { set = "AVX2"; }
  if (used.most == device::InstructionSet::avx512) { set = "AVX-512"; }
  if (used.most == device::InstructionSet::avx512_bf16) { set = "AVX-512 with AVX512-BF16"; }
  const std::string text = environment(device::kVariable).value_or("");
  return fmt::format("{}, choices of {} processors{}", set,
                     used.choices == device::Choices::intel ? "Intel" : "AMD",
                     text.empty() ? "" : fmt::format(" ({}={})", device::kVariable, text));
}

}  // namespace tessera
