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
  for (const ProcessorFeature& feature : processor_features()) {
    if (feature.name == std::string_view{"AVX-512F"}) { return feature.compiled_for; }
  }
  return false;
}

TEST(Instructions, AreAllOfThisProcessorUnlessToldOtherwise) {
  EXPECT_EQ(parse_instructions("").most, InstructionSet::native);
  EXPECT_EQ(parse_instructions("").choices, parse_instructions("native").choices);
}

TEST(Instructions, AreCappedByAWordAndChosenByAnother) {
  EXPECT_EQ(parse_instructions("intel").choices, Choices::intel);
  EXPECT_EQ(parse_instructions("amd").choices, Choices::amd);
  EXPECT_EQ(parse_instructions("amd,native").most, InstructionSet::native);
  if (built_for_avx512()) { GTEST_SKIP() << "this build uses AVX-512 everywhere"; }
  const Instructions used = parse_instructions("avx2,intel");
  EXPECT_EQ(used.most, InstructionSet::avx2);
  EXPECT_EQ(used.choices, Choices::intel);
  EXPECT_TRUE(used.allows(InstructionSet::avx2));
  EXPECT_FALSE(used.allows(InstructionSet::avx512));
}

TEST(Instructions, OtherWordsAreRefusedByName) {
  for (const char* const text :
       {"sse", "AVX2", "avx2 ", " avx2", ",", "avx512,arm", "avx2,,intel", "native\n"}) {
    SCOPED_TRACE(text);
    EXPECT_THAT([&] { (void)parse_instructions(text); },
                ThrowsMessage<ConfigError>(AllOf(HasSubstr("TESSERA_CPU="),
                                                 HasSubstr("avx512-bf16"), HasSubstr("intel"))));
  }
  EXPECT_THAT([] { (void)parse_instructions("intel,amd"); },
              ThrowsMessage<ConfigError>(HasSubstr("two words of one kind")));
}

// A set that the processor lacks is refused, not silently lowered.
TEST(Instructions, OfAnotherProcessorAreRefused) {
  for (const char* const word : {"avx512", "avx512-bf16"}) {
    try {
      (void)parse_instructions(word);
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("this processor lacks: take avx2"));
    }
  }
}

}  // namespace
}  // namespace tessera::instructions_test
