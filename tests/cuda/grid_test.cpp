// A device with more multiprocessors runs more blocks and divides the work differently.
#include "cuda/emulation.hpp"
#include "cuda/support.hpp"
#include "kernels/values.hpp"

namespace tessera::test::grid_test {
namespace {

using GridCuda = CudaTest;
using kernels::Bytes;
using kernels::DeviceValues;
using kernels::random_floats;

constexpr std::int64_t kRows = 3001;
constexpr std::int64_t kColumns = 40;
constexpr std::int64_t kElems = kRows * kColumns;

/// Results of kernels with every kind of grid, from the same inputs.
std::vector<Bytes> results(CudaBench& bench) {
  const kernels::Table& table = kernels::table_of(DeviceKind::cuda);
  const Stream stream = bench.stream();
  const auto fresh = [&](std::int64_t elems, unsigned seed) {
    return DeviceValues{bench, random_floats(elems, seed), DType::bf16};
  };
  DeviceValues x = fresh(kElems, 1), y = fresh(kElems, 2), dx = fresh(kElems, 3);
  DeviceValues weight = fresh(kColumns, 4), bias = fresh(kColumns, 5);
  DeviceValues dweight = fresh(kColumns, 6), dbias = fresh(kColumns, 7);
  DeviceValues activated = fresh(kElems, 8), dropped = fresh(kElems, 9);
  DeviceArray<float> mean{bench, kRows}, inverse_std{bench, kRows};
  DeviceArray<double> sum{bench, std::vector<double>{0.0}};
  table.layer_norm_forward({x, weight, bias, y, mean.data(), inverse_std.data(), kRows, kColumns},
                           stream);
  table.layer_norm_backward(
      {x, weight, mean.data(), inverse_std.data(), y, dx, dweight, dbias, kRows, kColumns}, stream);
  table.add_bias(y, bias, kRows, kColumns, stream);
  table.gelu_forward(y, activated, kElems, stream, kernels::GELU::tanh);
  table.dropout({activated, dropped, kRows, kColumns, 0.3F, {}}, stream);
  table.squared_norm(std::array{kernels::NormTerm{dropped, kElems, sum.data()}}, stream);
  const std::vector<double> norm = sum.read();
  const auto* const first = reinterpret_cast<const std::byte*>(norm.data());
  return {y.read(),
          dx.read(),
          dweight.read(),
          dbias.read(),
          activated.read(),
          dropped.read(),
          Bytes(first, first + sizeof(double))};
}

TEST_F(GridCuda, ResultsDoNotDependOnTheNumberOfMultiprocessors) {
  TESSERA_EMULATION_ONLY();
  Emulation emulation;
  const std::vector<Bytes> expected = results(bench());
  for (const int multiprocessors : {1, 7, 132}) {
    emulation.set_multiprocessors(multiprocessors);
    EXPECT_EQ(results(bench()), expected) << multiprocessors;
  }
}

}  // namespace
}  // namespace tessera::test::grid_test
