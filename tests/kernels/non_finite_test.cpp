#include "kernels/non_finite/non_finite.hpp"

#include "kernels/values.hpp"
#include "support/host_tensor.hpp"

namespace tessera::kernels::non_finite_test {
namespace {

using test::HostTensor;

double by_reference(HostTensor& x, double place, double before = 0.0) {
  reference::find_non_finite(x.view(), place, &before, Stream{});
  return before;
}

class NonFiniteKernels : public BackendTest {
 protected:
  double found_in(HostTensor& x, double place, double before = 0.0, std::int64_t offset = 0) {
    const View view = x.view();
    const auto* const first = static_cast<const std::byte*>(view.data);
    const auto size = static_cast<std::int64_t>(size_of(view.dtype));
    DeviceArray<std::byte> array{bench(), std::span{first, view.bytes()}, offset * size};
    DeviceArray<double> found{bench(), std::vector<double>{before}};
    table().find_non_finite({array.data(), view.elems, view.dtype}, place, found.data(), stream());
    return found.read().front();
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, NonFiniteKernels, backends(), backend_name);

TEST_P(NonFiniteKernels, FindOneBadElementAnywhere) {
  for (const DType dtype : test::kDTypes) {
    for (const std::int64_t elems : {1, 2, 33, 257, 1023, 1024, 1025, 2500, 10'003}) {
      HostTensor tensor{dtype, elems, 1.0};
      EXPECT_EQ(found_in(tensor, 7.0, 0.0, 1), 0.0);
      for (const std::int64_t at : {std::int64_t{0}, elems / 2, elems - 1}) {
        for (const double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
          tensor.set(at, bad);
          EXPECT_EQ(by_reference(tensor, 7.0), 7.0) << to_string(dtype);
          EXPECT_EQ(found_in(tensor, 7.0, 0.0, at % 3), 7.0)
              << to_string(dtype) << ", element " << at << " of " << elems;
          tensor.set(at, 1.0);
        }
      }
    }
  }
}

// More packs than the threads that a GPU runs at once.
TEST_P(NonFiniteKernels, FindABadElementAtTheEndOfALongArray) {
  constexpr std::int64_t elems = 2'500'003;
  HostTensor tensor{DType::fp32, elems, 1.0};
  EXPECT_EQ(found_in(tensor, 7.0), 0.0);
  for (const std::int64_t at : {elems / 2, elems - 9, elems - 1}) {
    tensor.set(at, HUGE_VAL);
    EXPECT_EQ(found_in(tensor, 7.0), 7.0) << at;
    tensor.set(at, 1.0);
  }
}

TEST_P(NonFiniteKernels, TreatTheLargestAndSmallestValuesAsFinite) {
  for (const DType dtype : test::kDTypes) {
    HostTensor tensor{dtype, 1001, 1.0};
    const double largest = dtype == DType::fp64   ? std::numeric_limits<double>::max()
                           : dtype == DType::fp16 ? 65'504.0
                                                  : 3e38;
    tensor.set(1, largest);
    tensor.set(2, -largest);
    tensor.set(3, 6e-8);
    tensor.set(4, -0.0);
    EXPECT_EQ(by_reference(tensor, 1.0), 0.0) << to_string(dtype);
    EXPECT_EQ(found_in(tensor, 1.0), 0.0) << to_string(dtype);
  }
}

TEST_P(NonFiniteKernels, TheFirstFindingStays) {
  HostTensor good{DType::fp32, 3, 1.0}, bad{DType::bf16, 100, 1.0}, none{DType::fp32, 0};
  bad.set(2, std::nan(""));
  double found = 0.0, expected = 0.0, place = 1.0;
  for (HostTensor* const tensor : {&good, &bad, &bad, &none}) {
    found = found_in(*tensor, place, found);
    expected = by_reference(*tensor, place, expected);
    place += 1.0;
  }
  EXPECT_EQ(found, 2.0);
  EXPECT_EQ(expected, 2.0);
}

}  // namespace
}  // namespace tessera::kernels::non_finite_test
