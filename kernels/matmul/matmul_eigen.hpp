#pragma once

// Included by one translation unit for each set of instructions: Eigen's products compile slowly,
// and every such unit renames the namespace Eigen, since the linker would merge equal templates of
// different instructions.

#define EIGEN_DONT_PARALLELIZE
// If the three sizes add up to less than the threshold, Eigen computes element by element; the
// order of an element's sum then depends on the address of C.
#define EIGEN_GEMM_TO_COEFFBASED_THRESHOLD 0
#include <Eigen/Core>

#include "kernels/matmul/matmul_strided.hpp"

namespace tessera::kernels {
namespace {

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ColMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;
using Stride = Eigen::OuterStride<>;
template <class Matrix>
using ConstMap = Eigen::Map<const Matrix, Eigen::Unaligned, Stride>;
using ResultMap = Eigen::Map<RowMajor, Eigen::Unaligned, Stride>;

// A transposed A is the same memory, read as a column-major matrix.
template <class A, class B>
void add_as(const StridedMatMul& p) {
  ResultMap(p.c.data, p.m, p.n, Stride(p.c.stride)).noalias() +=
      ConstMap<A>(p.a.data, p.m, p.k, Stride(p.a.stride)) *
      ConstMap<B>(p.b.data, p.k, p.n, Stride(p.b.stride));
}

// Eigen cuts k by the size of the first-level cache, and n where the product is small by that of
// the second. Fixed sizes give all processors with one instruction set the same sums. With a
// third-level cache of 0 it cuts n at whole blocks of registers only, whatever m is.
bool fix_cache_sizes() {
  Eigen::setCpuCacheSizes(32 * 1024, 1024 * 1024, 0);
  return true;
}

// m is a multiple of kRowBlock, n at least 2.
void add_with_eigen(const StridedMatMul& p) {
  [[maybe_unused]] static const bool fixed = fix_cache_sizes();
  const bool a = p.transpose_a == Transpose::yes;
  const bool b = p.transpose_b == Transpose::yes;
  if (!a && !b) { add_as<RowMajor, RowMajor>(p); }
  if (!a && b) { add_as<RowMajor, ColMajor>(p); }
  if (a && !b) { add_as<ColMajor, RowMajor>(p); }
  if (a && b) { add_as<ColMajor, ColMajor>(p); }
}

}  // namespace
}  // namespace tessera::kernels
