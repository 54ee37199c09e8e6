#include "kernels/support/product.hpp"

// One translation unit instantiates Eigen's products: they compile slowly.
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>

namespace tessera::kernels {
namespace {

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ColMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;
using Stride = Eigen::OuterStride<>;
template <class Matrix>
using ConstMap = Eigen::Map<const Matrix, Eigen::Unaligned, Stride>;
using ResultMap = Eigen::Map<RowMajor, Eigen::Unaligned, Stride>;

// op(A) for a transposed A is the same memory read as a column-major matrix.
template <class A, class B>
void add(Strided<const float> a, Strided<const float> b, Strided<float> c, std::int64_t m,
         std::int64_t n, std::int64_t k) {
  ResultMap(c.data, m, n, Stride(c.stride)).noalias() +=
      ConstMap<A>(a.data, m, k, Stride(a.stride)) * ConstMap<B>(b.data, k, n, Stride(b.stride));
}

}  // namespace

void add_product(Strided<const float> a, Transpose transpose_a, Strided<const float> b,
                 Transpose transpose_b, Strided<float> c, std::int64_t m, std::int64_t n,
                 std::int64_t k) {
  if (m == 0 || n == 0 || k == 0) { return; }
  const bool ta = transpose_a == Transpose::yes;
  const bool tb = transpose_b == Transpose::yes;
  if (!ta && !tb) { add<RowMajor, RowMajor>(a, b, c, m, n, k); }
  if (!ta && tb) { add<RowMajor, ColMajor>(a, b, c, m, n, k); }
  if (ta && !tb) { add<ColMajor, RowMajor>(a, b, c, m, n, k); }
  if (ta && tb) { add<ColMajor, ColMajor>(a, b, c, m, n, k); }
}

}  // namespace tessera::kernels
