#include "comm/batch_code.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "support/signature.hpp"
#include "tessera/base/error.hpp"

namespace tessera::batch_code_test {
namespace {

std::string code_of(const Batch& batch) {
  std::string code = "what was there before";
  comm::encode(batch, code);
  return code;
}

/// One of each operation, with distinct values, so that mixed-up fields show.
Batch all_operations() {
  static std::vector<double> memory(64);
  const auto view = [](std::int64_t elems, DType dtype) {
    return View{memory.data(), elems, dtype};
  };
  return Batch{"gather h.0: x; y"}
      .all_gather(view(3, DType::bf16), view(12, DType::bf16))
      .reduce_scatter(view(8, DType::fp32), view(2, DType::fp32), ReduceOp::max)
      .all_reduce(view(5, DType::fp64))
      .broadcast(view(7, DType::fp16), 2)
      .reduce(view(9, DType::fp32), ReduceOp::max, 3)
      .gather(view(4, DType::fp32), view(16, DType::fp32), 1);
}

TEST(BatchCode, ADecodedBatchReadsAsTheOriginal) {
  const Batch batch = all_operations();
  const Batch decoded = comm::decode(code_of(batch));
  EXPECT_EQ(test::signature(decoded, 4), test::signature(batch, 4));
  EXPECT_EQ(code_of(decoded), code_of(batch));
}

TEST(BatchCode, AddressesAndTheRootsSideDoNotMatter) {
  std::vector<float> a(8);
  std::vector<float> b(8);
  const auto gather = [](std::vector<float>& from, View full) {
    return code_of(Batch{"x"}.gather(ConstView{from.data(), 2, DType::fp32}, full, 0));
  };
  EXPECT_EQ(gather(a, View{a.data(), 8, DType::fp32}), gather(b, View{}));
}

TEST(BatchCode, EveryFieldThatMustAgreeChangesTheCode) {
  std::vector<double> memory(8);
  const auto view = [&](std::int64_t elems, DType dtype = DType::fp32) {
    return View{memory.data(), elems, dtype};
  };
  const std::vector<std::string> codes{
      code_of(Batch{"x"}),
      code_of(Batch{"y"}),
      code_of(Batch{"x"}.all_reduce(view(4))),
      code_of(Batch{"x"}.all_reduce(view(5))),
      code_of(Batch{"x"}.all_reduce(view(4, DType::bf16))),
      code_of(Batch{"x"}.all_reduce(view(4), ReduceOp::max)),
      code_of(Batch{"x"}.all_reduce(view(4)).all_reduce(view(4))),
      code_of(Batch{"x"}.broadcast(view(4), 0)),
      code_of(Batch{"x"}.broadcast(view(4), 1)),
      code_of(Batch{"x"}.reduce(view(4), ReduceOp::sum, 0)),
  };
  for (std::size_t i = 0; i < codes.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) { EXPECT_NE(codes[i], codes[j]) << i << " and " << j; }
  }
}

TEST(BatchCode, DamageIsRefused) {
  const std::string code = code_of(all_operations());
  for (std::size_t cut = 1; cut < code.size(); ++cut) {
    const std::string damaged = code.substr(0, code.size() - cut);
    try {
      EXPECT_NE(code_of(comm::decode(damaged)), code) << "cut by " << cut;
    } catch (const ContractError&) {  // most cuts
    }
  }
  // The last entry has operation, dtype, reduction (none for a gather), padding, elements.
  for (const std::size_t from_end : {4U, 3U, 2U, 1U, 17U}) {
    std::string unknown = code;
    unknown[unknown.size() - from_end] = static_cast<char>(0x99);
    EXPECT_THROW((void)comm::decode(unknown), ContractError) << from_end;
  }
}

}  // namespace
}  // namespace tessera::batch_code_test
