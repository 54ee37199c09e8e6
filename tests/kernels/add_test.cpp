#include "kernels/add/add.hpp"

#include "kernels/values.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels::add_test {
namespace {

class AddKernels : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Backends, AddKernels, backends(), backend_name);

TEST_P(AddKernels, WriteTheRoundedSumAlsoInPlace) {
  for (const DType dtype : kValueDTypes) {
    for (const std::int64_t elems : kSizes) {
      SCOPED_TRACE(testing::Message() << elems << " " << to_string(dtype));
      const Floats a = rounded(dtype, random_floats(elems, 4, 3.0F));
      const Floats b = rounded(dtype, random_floats(elems, 5));
      Floats sums;
      for (std::size_t i = 0; i < a.size(); ++i) { sums.push_back(a[i] + b[i]); }
      const Bytes expected = encoded(sums, dtype);
      DeviceValues first{bench(), a, dtype, 1}, second{bench(), b, dtype};
      DeviceValues apart{bench(), elems, dtype, 3};
      table().add(first, second, apart, elems, stream());
      EXPECT_EQ(apart.read(), expected);
      DeviceValues onto_first{bench(), a, dtype}, onto_second{bench(), b, dtype};
      table().add(onto_first, second, onto_first, elems, stream());
      EXPECT_EQ(onto_first.read(), expected);
      table().add(first, onto_second, onto_second, elems, stream());
      EXPECT_EQ(onto_second.read(), expected);
    }
  }
}

TEST_P(AddKernels, RefuseMixedDtypes) {
  DeviceArray<float> x{bench(), 1};
  EXPECT_THROW(table().add({x.data(), DType::bf16}, x.data(), x.data(), 1, stream()),
               ContractError);
}

}  // namespace
}  // namespace tessera::kernels::add_test
