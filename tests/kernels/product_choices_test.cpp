// The file of recorded algorithms: the reader accepts exactly what the writer writes.
#include "kernels/matmul/product_choices.hpp"

#include <gmock/gmock.h>

#include <string>

#include "tessera/base/error.hpp"

namespace tessera::kernels::product_choices_test {
namespace {

using ::testing::HasSubstr;

constexpr ProductKind kKind{.m = 64,
                            .n = 48,
                            .k = 32,
                            .a_stride = 32,
                            .c_stride = 64,
                            .factors = DType::bf16,
                            .result = DType::fp32,
                            .transpose_a = Transpose::no,
                            .transpose_b = Transpose::yes,
                            .epilogue = Epilogue::gelu_gradient,
                            .bias = true,
                            .bias_gradient = false};

ProductChoices choices_of(const ProductMachine& machine = {"a device", 130100, 132}) {
  ProductChoices choices{.machine = machine, .products = {}};
  choices.products[kKind] = {{1, 2, 3, 4, 5, 6, 7, ~std::uint64_t{0}}, 0.5, 0.75};
  ProductKind other = kKind;
  other.factors = DType::fp16;
  choices.products[other] = {{8}, 1, 2};
  return choices;
}

TEST(ProductChoices, RoundTrip) {
  const ProductChoices read = parse_product_choices("f.json", to_json(choices_of()));
  EXPECT_EQ(read.machine, choices_of().machine);
  EXPECT_EQ(to_json(read), to_json(choices_of()));
  ASSERT_NE(read.find(kKind), nullptr);
  EXPECT_EQ(*read.find(kKind), (ProductAlgorithm{1, 2, 3, 4, 5, 6, 7, ~std::uint64_t{0}}));
  ProductKind unknown = kKind;
  ++unknown.m;
  EXPECT_EQ(read.find(unknown), nullptr);
}

TEST(ProductChoices, AreDescribedByTheirContent) {
  ProductChoices other = choices_of();
  EXPECT_EQ(describe(other), describe(choices_of()));
  EXPECT_THAT(describe(other), HasSubstr("a device with cuBLASLt 13.1.0 on 132 multiprocessors"));
  ++other.products.begin()->second.algorithm[3];
  EXPECT_NE(describe(other), describe(choices_of()));
}

struct Damage {
  const char* from;
  const char* to;
  const char* error;
};
// Each text occurs in the file of `choices_of`.
constexpr Damage kDamages[] = {
    {"{", "", "it is not JSON"},
    {"\"tessera_products\": 1", "\"tessera_products\": 2", "its version is not 1"},
    {"\"tessera_products\"", "\"other\"", "the document has no 'tessera_products'"},
    {"\"device\": \"a device\"", "\"device\": 7", "'device' in the document is no text"},
    {"130100", "-1", "'cublaslt' in the document is not a number"},
    {"\"multiprocessors\": 132", "\"multiprocessors\": 1099511627776",
     "'multiprocessors' in the document is not a number from 1 to 1048576"},
    {"\"m\": 64", "\"m\": 0", "'m' in product 0 is not a number"},
    {"\"m\": 64", "\"m\": 18446744073709551615", "'m' in product 0 is not a number"},
    {"\"k\": 32", "\"k\": 3.5", "'k' in product 0 is not a number"},
    {"\"fp32\"", "\"fp64\"", "'result' in product 0 is 'fp64'"},
    {"\"transpose_b\": true", "\"transpose_b\": 1", "'transpose_b' in product 0"},
    {"\"gelu_gradient\"", "\"relu\"", "the epilogue of product 0 is 'relu'; use none"},
    {"0000000000000008", "8", "has not 16 digits"},
    {"0000000000000008", "000000000000000g", "has not 16 digits"},
    {"\"0000000000000008\",", "", "has not 8 words"},
    {"\"ms\": 1.0", "\"ms\": null", "'ms' in product 1 is no number"},
    {"\"factors\": \"bf16\"", "\"factors\": \"fp16\"", "product 1 is there twice"}};

TEST(ProductChoices, RefuseOtherFiles) {
  for (const auto& [from, to, error] : kDamages) {
    SCOPED_TRACE(std::string{from} + " -> " + to);
    std::string text = to_json(choices_of());
    ASSERT_NE(text.find(from), std::string::npos);
    text.replace(text.find(from), std::string_view{from}.size(), to);
    try {
      (void)parse_product_choices("f.json", text);
      FAIL() << "it is taken";
    } catch (const FormatError& refused) {
      EXPECT_THAT(refused.what(), HasSubstr("f.json: it is no file of recorded products"));
      EXPECT_THAT(refused.what(), HasSubstr(error));
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::product_choices_test
