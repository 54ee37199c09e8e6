#pragma once

#include "kernels/attention/attention.hpp"
#include "kernels/values.hpp"

// Forward and backward of attention, by the reference and on a device.
namespace tessera::kernels::attention {

inline constexpr DropoutKey kKey{.seed = 3, .step = 5, .site = 4, .first_sample = 6};

inline std::int64_t values_of(const AttentionShape& shape) {
  return shape.batch * shape.seq * shape.heads * shape.head_size;
}

inline std::int64_t packed_values_of(const AttentionShape& shape) {
  return shape.batch * shape.seq * packed_of(shape);
}

/// Computes with the reference in fp32, on values rounded to a dtype.
struct Pass {
  DType dtype;
  AttentionShape shape;
  float dropout;
  float stddev;
  DropoutKey key = kKey;
  std::int64_t first_head = 0;
  std::vector<std::int32_t> first_key;  ///< empty: none
  Floats qkv, dy, y, log_sum_exp, dqkv;

  explicit Pass(DType dtype_, const AttentionShape& shape_, float dropout_ = 0.0F,
                float stddev_ = 1.0F)
      : dtype{dtype_},
        shape{shape_},
        dropout{dropout_},
        stddev{stddev_},
        qkv{rounded(dtype, random_floats(packed_values_of(shape), 1, stddev))},
        dy{rounded(dtype, random_floats(values_of(shape), 2))},
        y{filled(values_of(shape), kNan)},
        log_sum_exp{filled(shape.head_size == 0 ? 0 : values_of(shape) / shape.head_size, kNan)},
        dqkv{filled(packed_values_of(shape), kNan)} {}

  void forward() {
    reference::attention_forward({qkv.data(), y.data(), log_sum_exp.data(), nullptr, shape, dropout,
                                  key, first_head, first_keys()},
                                 Stream{});
  }
  void backward() {
    reference::attention_backward({qkv.data(), y.data(), log_sum_exp.data(), dy.data(), dqkv.data(),
                                   nullptr, shape, dropout, key, 0, first_head, first_keys()},
                                  Stream{});
  }

 private:
  [[nodiscard]] const std::int32_t* first_keys() const {
    return first_key.empty() ? nullptr : first_key.data();
  }
};

/// The same on a device, in a workspace of exactly the documented size. Array i starts `offset + i
/// * stagger` elements after an aligned address.
struct OnDevice {
  AttentionShape shape;
  float dropout;
  DropoutKey key;
  std::int64_t first_head;
  DeviceValues qkv, dy, y, dqkv;
  DeviceArray<float> log_sum_exp, workspace;
  DeviceArray<std::int32_t> first_key;

  OnDevice(DeviceBench& bench, const Pass& from, std::int64_t offset = 0, std::int64_t stagger = 0,
           int threads = 1)
      : shape{from.shape},
        dropout{from.dropout},
        key{from.key},
        first_head{from.first_head},
        qkv{bench, from.qkv, from.dtype, offset},
        dy{bench, from.dy, from.dtype, offset + stagger},
        y{bench, std::ssize(from.y), from.dtype, offset + 2 * stagger},
        dqkv{bench, std::ssize(from.dqkv), from.dtype, offset + 3 * stagger},
        log_sum_exp{bench, std::ssize(from.log_sum_exp)},
        workspace{bench,
                  bench.table().attention_workspace_elems(shape, from.dtype, {.threads = threads}),
                  4 * stagger},
        first_key{bench, from.first_key} {}

  void forward(DeviceBench& bench) {
    bench.table().attention_forward({qkv, y, log_sum_exp.data(), workspace.data(), shape, dropout,
                                     key, first_head, first_keys()},
                                    bench.stream());
  }
  void run(DeviceBench& bench) {
    forward(bench);
    bench.table().attention_backward({qkv, y, log_sum_exp.data(), dy, dqkv, workspace.data(), shape,
                                      dropout, key, 0, first_head, first_keys()},
                                     bench.stream());
  }

 private:
  [[nodiscard]] const std::int32_t* first_keys() {
    return first_key.elems() == 0 ? nullptr : first_key.data();
  }
};

class AttentionTest : public BackendTest {
 protected:
  void run(OnDevice& on_device) { on_device.run(bench()); }

  /// Scores and their absolute errors grow with the square of the deviation; dropout scales what it
  /// keeps. In 16 bits y is rounded before backward reads it. A key head's gradient has the errors
  /// of all its query heads.
  void expect_close(Pass expected) {
    OnDevice actual{bench(), expected};
    run(actual);
    expected.forward();
    expected.backward();
    const double deviation = expected.stddev;
    const double square = deviation * deviation;
    const double kept = expected.dropout > 0.0F ? 2.0 : 1.0;
    const double of_y =
        (on_cuda() ? 1e-5 : 9e-6) * square * kept + of_cores(expected, 4.0 * deviation);
    expect_within(actual.y.floats(), expected.y, expected.dtype, [&](std::size_t) { return of_y; });
    // bound: a score is a sum of up to 256 products, 5 u sqrt(129 / 3) = 2e-6; on CUDA the
    // exponentials are less exact
    EXPECT_LE(largest_difference(actual.log_sum_exp.read(), expected.log_sum_exp),
              (on_cuda() ? 4e-6 * kept : 2e-6) * square);
    const double stored =
        expected.dtype == DType::fp32 ? 0.0 : rounding(expected.dtype, 8.0 * deviation);
    const double of_dqkv = ((on_cuda() ? 4e-5 : 1.8e-5) * square * deviation * kept + stored +
                            of_cores(expected, 32.0 * deviation)) *
                           static_cast<double>(group_of(expected.shape));
    expect_within(actual.dqkv.floats(), expected.dqkv, expected.dtype,
                  [&](std::size_t) { return of_dqkv; });
  }

 private:
  /// Additional error of tensor cores, in cuDNN's kernels or Tessera's: probabilities, whose sum
  /// per row is 1, and their gradients are rounded to the dtype before they are multiplied by
  /// numbers of up to `size`; dropout scales what it keeps.
  static double of_cores(const Pass& pass, double size) {
    const bool may_be = on_cuda() && size_of(pass.dtype) == 2 && pass.shape.head_size <= 128;
    return may_be ? rounding(pass.dtype, size) / (1.0 - pass.dropout) : 0.0;
  }
};

}  // namespace tessera::kernels::attention
