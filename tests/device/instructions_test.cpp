#include "device/cpu/instructions.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cpu/processor.hpp"
#include "tessera/base/error.hpp"

namespace tessera::instructions_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

bool built_for_avx512() {
  for (const device::ProcessorFeature& feature : device::processor_features()) {
    if (feature.name == std::string_view{"AVX-512F"}) { return feature.compiled_for; }
  }
  return false;
}

TEST(Instructions, AreAllOfThisProcessorUnlessToldOtherwise) {
  EXPECT_EQ(device::parse_instructions("").most, device::InstructionSet::native);
  EXPECT_EQ(device::parse_instructions("").choices, device::parse_instructions("native").choices);
}

TEST(Instructions, AreCappedByAWordAndChosenByAnother) {
  EXPECT_EQ(device::parse_instructions("intel").choices, device::Choices::intel);
  EXPECT_EQ(device::parse_instructions("amd").choices, device::Choices::amd);
  EXPECT_EQ(device::parse_instructions("amd,native").most, device::InstructionSet::native);
  if (built_for_avx512()) { GTEST_SKIP() << "this build uses AVX-512 everywhere"; }
  const device::Instructions used = device::parse_instructions("avx2,intel");
  EXPECT_EQ(used.most, device::InstructionSet::avx2);
  EXPECT_EQ(used.choices, device::Choices::intel);
  EXPECT_TRUE(used.allows(device::InstructionSet::avx2));
  EXPECT_FALSE(used.allows(device::InstructionSet::avx512));
}

TEST(Instructions, OtherWordsAreRefusedByName) {
  for (const char* const text :
       {"sse", "AVX2", "avx2 ", " avx2", ",", "avx2,", "native,arm", "avx2,,intel", "native\n"}) {
    SCOPED_TRACE(text);
    EXPECT_THAT([&] { (void)device::parse_instructions(text); },
                ThrowsMessage<ConfigError>(AllOf(HasSubstr("TESSERA_CPU="),
                                                 HasSubstr("avx512-bf16"), HasSubstr("intel"))));
  }
  EXPECT_THAT([] { (void)device::parse_instructions("intel,amd"); },
              ThrowsMessage<ConfigError>(HasSubstr("two words of one kind")));
}

// A set that the processor lacks is refused, not silently lowered.
TEST(Instructions, OfAnotherProcessorAreRefused) {
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  const bool bf16 = avx512 && __builtin_cpu_supports("avx512bf16");
  const auto expect = [](const char* word, device::InstructionSet set, bool there) {
    if (there) {
      EXPECT_EQ(device::parse_instructions(word).most, set);
    } else {
      EXPECT_THAT([&] { (void)device::parse_instructions(word); },
                  ThrowsMessage<ConfigError>(HasSubstr("this processor lacks: take avx2")));
    }
  };
  expect("avx512", device::InstructionSet::avx512, avx512);
  expect("avx512-bf16", device::InstructionSet::avx512_bf16, bf16);
}

}  // namespace
}  // namespace tessera::instructions_test
