#include "kernels/non_finite/non_finite.hpp"

#include <cstring>

#include "kernels/support.hpp"
#include "tessera/base/half.hpp"

namespace tessera::kernels {
namespace {

using FindNonFiniteTest = KernelTest;

constexpr DType kDTypes[] = {DType::fp32, DType::bf16, DType::fp16, DType::fp64};

/// `elems` ones of a dtype, one of which can be replaced.
class Tensor {
 public:
  Tensor(DType dtype, std::int64_t elems)
      : dtype_{dtype}, bytes_(static_cast<std::size_t>(elems) * size_of(dtype)), elems_{elems} {
    for (std::int64_t i = 0; i < elems; ++i) { set(i, 1.0); }
  }
  void set(std::int64_t i, double value) {
    const auto narrow = static_cast<float>(value);
    switch (dtype_) {
      case DType::fp32:
        return write(i, narrow);
      case DType::bf16:
        return write(i, bfloat16::from_float(narrow).bits);
      case DType::fp16:
        return write(i, float16::from_float(narrow).bits);
      case DType::fp64:
        return write(i, value);
    }
  }
  [[nodiscard]] ConstView view() const { return {bytes_.data(), elems_, dtype_}; }

 private:
  template <class T>
  void write(std::int64_t i, T value) {
    std::memcpy(bytes_.data() + static_cast<std::size_t>(i) * sizeof value, &value, sizeof value);
  }

  DType dtype_;
  std::vector<std::byte> bytes_;
  std::int64_t elems_;
};

TEST_F(FindNonFiniteTest, FindsOneBadElementWhereverItIs) {
  for (const DType dtype : kDTypes) {
    for (const std::int64_t elems : {1, 2, 33, 1023, 1024, 1025, 2500}) {
      for (const std::int64_t at : {std::int64_t{0}, elems / 2, elems - 1}) {
        for (const double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
          Tensor tensor{dtype, elems};
          tensor.set(at, bad);
          double found = 0.0, expected = 0.0;
          reference::find_non_finite(tensor.view(), 7.0, &expected, stream());
          cpu_.find_non_finite(tensor.view(), 7.0, &found, stream());
          EXPECT_EQ(expected, 7.0) << to_string(dtype);
          EXPECT_EQ(found, 7.0) << to_string(dtype) << ", element " << at << " of " << elems;
        }
      }
    }
  }
}

TEST_F(FindNonFiniteTest, TheLargestAndSmallestValuesAreFinite) {
  for (const DType dtype : kDTypes) {
    Tensor tensor{dtype, 5};
    const double largest = dtype == DType::fp16 ? 65'504.0 : 3e38;
    tensor.set(1, largest);
    tensor.set(2, -largest);
    tensor.set(3, 6e-8);
    tensor.set(4, -0.0);
    for (const auto find : {reference::find_non_finite, cpu::find_non_finite}) {
      double found = 0.0;
      find(tensor.view(), 1.0, &found, stream());
      EXPECT_EQ(found, 0.0) << to_string(dtype);
    }
  }
}

TEST_F(FindNonFiniteTest, TheFirstThatFindsSomethingStays) {
  Tensor good{DType::fp32, 3}, bad{DType::fp32, 3};
  bad.set(2, std::nan(""));
  for (const auto find : {reference::find_non_finite, cpu::find_non_finite}) {
    double found = 0.0;
    find(good.view(), 1.0, &found, stream());
    find(bad.view(), 2.0, &found, stream());
    find(bad.view(), 3.0, &found, stream());
    find({nullptr, 0, DType::fp32}, 4.0, &found, stream());
    EXPECT_EQ(found, 2.0);
  }
}

}  // namespace
}  // namespace tessera::kernels
