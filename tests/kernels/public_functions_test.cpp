// The public functions of tessera/kernels find their backend by the stream, and reject invalid
// arguments before they enqueue anything.
#include <cstring>
#include <functional>

#include "kernels/values.hpp"
#include "tessera/base/error.hpp"
#include "tessera/kernels/kernels.hpp"

namespace tessera::kernels::public_functions_test {
namespace {

class PublicKernels : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Backends, PublicKernels, backends(), backend_name);

TEST_P(PublicKernels, ComputeOnTheDeviceOfTheirStream) {
  DeviceArray<float> a{bench(), Floats{1, 2, 3, 4}}, b{bench(), Floats{5, 6, 7, 8}};
  DeviceArray<float> y{bench(), 4};
  matmul({.a = a.data(), .b = b.data(), .c = y.data(), .m = 2, .n = 2, .k = 2}, stream());
  add(y.data(), a.data(), y.data(), 4, stream());
  scale(y.data(), 0.5F, 4, stream());
  EXPECT_EQ(y.read(), (Floats{10, 12, 23, 27}));
  EXPECT_EQ(fast_row_multiple(stream()), on_cuda() ? 64 : 1);
  const AttentionShape shape{2, 70, 3, 16};
  EXPECT_EQ(attention_workspace_elems(shape, DType::fp32, stream()),
            table().attention_workspace_elems(shape, DType::fp32, {}));
}

/// One memory for all arguments; no refused call may touch it.
struct Arrays {
  float* data;
  std::int32_t* tokens;
  double* loss;

  [[nodiscard]] std::uint8_t* bytes() const { return reinterpret_cast<std::uint8_t*>(data); }
  [[nodiscard]] std::int8_t* signed_bytes() const { return reinterpret_cast<std::int8_t*>(data); }
};

struct Refusal {
  const char* text;
  std::function<void(const Arrays&, Stream)> call;
};

// clang-format off: one or two lines per case
const Refusal kRefusals[] = {
    {"matmul: m is -3; give 0 or more",
     [](auto& a, Stream s) { matmul({.a = a.data, .b = a.data, .c = a.data, .m = -3, .n = 2, .k = 2}, s); }},
    {"matmul: b is null, but 6 elements of it are needed",
     [](auto& a, Stream s) { matmul({.a = a.data, .b = nullptr, .c = a.data, .m = 2, .n = 3, .k = 2}, s); }},
    {"matmul: c_stride is 2, shorter than a row of 3 elements",
     [](auto& a, Stream s) { matmul({.a = a.data, .b = a.data, .c = a.data, .m = 2, .n = 3, .k = 2, .c_stride = 2}, s); }},
    {"matmul: bias, epilogue and residual are for products that overwrite C",
     [](auto& a, Stream s) { matmul({.a = a.data, .b = a.data, .c = a.data, .m = 1, .n = 1, .k = 1, .write = Write::add, .bias = a.data}, s); }},
    {"matmul: C is not its own residual; add to it with Write::add",
     [](auto& a, Stream s) { matmul({.a = a.data, .b = a.data, .c = a.data, .m = 1, .n = 1, .k = 1, .residual = a.data}, s); }},
    {"add: a is fp64; give fp32, bf16 or fp16",
     [](auto& a, Stream s) { add(ConstValues{a.data, DType::fp64}, a.data, a.data, 1, s); }},
    {"add: a is fp32, but b is bf16; give both in one dtype",
     [](auto& a, Stream s) { add(a.data, ConstValues{a.data, DType::bf16}, a.data, 1, s); }},
    {"accumulate: elems is -1; give 0 or more",
     [](auto& a, Stream s) { accumulate(a.data, a.data, -1, s); }},
    {"scale: to is null, but 4 elements of it are needed",
     [](auto&, Stream s) { scale(nullptr, 2.0F, 4, s); }},
    {"cast: to has 4 elements, but from has 3; give as many",
     [](auto& a, Stream s) { cast({a.data, 4, DType::fp32}, {a.data, 3, DType::bf16}, s); }},
    {"add_bias: bias is null, but 5 elements of it are needed",
     [](auto& a, Stream s) { add_bias(a.data, nullptr, 2, 5, s); }},
    {"bias_gradient: columns is -5; give 0 or more",
     [](auto& a, Stream s) { bias_gradient(a.data, a.data, 2, -5, s); }},
    {"gelu_forward: x is fp32, but y is fp16; give both in one dtype",
     [](auto& a, Stream s) { gelu_forward(a.data, Values{a.data, DType::fp16}, 1, s); }},
    {"gelu_backward: dx is null, but 3 elements of it are needed",
     [](auto& a, Stream s) { gelu_backward(a.data, a.data, nullptr, 3, s); }},
    {"layer_norm_forward: weight is fp32, but bias is bf16; give both in one dtype",
     [](auto& a, Stream s) { layer_norm_forward({a.data, a.data, Values{a.data, DType::bf16}, a.data, a.data, a.data, 1, 1}, s); }},
    {"layer_norm_forward: mean is null, but 2 elements of it are needed",
     [](auto& a, Stream s) { layer_norm_forward({a.data, a.data, a.data, a.data, nullptr, a.data, 2, 1}, s); }},
    {"layer_norm_backward: dweight is bf16, but dbias is fp32; give both in one dtype",
     [](auto& a, Stream s) { layer_norm_backward({a.data, a.data, a.data, a.data, a.data, a.data, Values{a.data, DType::bf16}, a.data, 1, 1}, s); }},
    {"rms_norm_forward: eps is -1; give 0 or more",
     [](auto& a, Stream s) { rms_norm_forward({a.data, a.data, a.data, a.data, 1, 1, -1.0F}, s); }},
    {"rms_norm_backward: x is fp32, but dx is bf16; give both in one dtype",
     [](auto& a, Stream s) { rms_norm_backward({a.data, a.data, a.data, a.data, Values{a.data, DType::bf16}, a.data, 1, 1}, s); }},
    {"rms_norm_forward: group is 0; give 1 or more",
     [](auto& a, Stream s) { rms_norm_forward({a.data, a.data, a.data, a.data, 2, 4, 0.0F, 0}, s); }},
    {"rms_norm_forward: group is 3; give a divisor of rows, which is 4",
     [](auto& a, Stream s) { rms_norm_forward({a.data, a.data, a.data, a.data, 4, 2, 0.0F, 3}, s); }},
    {"rms_norm_forward: y_group_elems is 7, shorter than a group of 8 elements",
     [](auto& a, Stream s) { rms_norm_forward({a.data, a.data, a.data, a.data, 4, 4, 0.0F, 2, 8, 7}, s); }},
    {"rms_norm_backward: dx_group_elems is -9, shorter than a group of 8 elements",
     [](auto& a, Stream s) { rms_norm_backward({.x = a.data, .weight = a.data, .inverse_rms = a.data, .dy = a.data, .dx = a.data, .dweight = a.data, .rows = 4, .columns = 4, .group = 2, .dx_group_elems = -9}, s); }},
    {"rms_norm_backward: with dy_group_elems of 4611686018427387904 there are more than 2^62 elements",
     [](auto& a, Stream s) { rms_norm_backward({.x = a.data, .weight = a.data, .inverse_rms = a.data, .dy = a.data, .dx = a.data, .dweight = a.data, .rows = 4, .columns = 4, .group = 2, .dy_group_elems = std::int64_t{1} << 62}, s); }},
    {"rotary_forward: head_size is 5; give an even number: values are rotated in pairs",
     [](auto& a, Stream s) { rotary_forward({a.data, a.data, a.data, 1, 1, 1, 5}, s); }},
    {"rotary_forward: rotated is 3; give an even number: values are rotated in pairs",
     [](auto& a, Stream s) { rotary_forward({a.data, a.data, a.data, 1, 1, 1, 5, 0, 3}, s); }},
    {"rotary_backward: rotated is -2; give 0 or more",
     [](auto& a, Stream s) { rotary_backward({a.data, a.data, a.data, 1, 1, 1, 5, 0, -2}, s); }},
    {"rotary_backward: rotated is 6, but heads have 5 elements; give as many or fewer",
     [](auto& a, Stream s) { rotary_backward({a.data, a.data, a.data, 1, 1, 1, 5, 0, 6}, s); }},
    {"rotary_forward: cosines is null, but 3 elements of it are needed",
     [](auto& a, Stream s) { rotary_forward({a.data, nullptr, a.data, 1, 3, 2, 5, 0, 2}, s); }},
    {"rotary_backward: row_elems is 7, shorter than a row of 8 elements",
     [](auto& a, Stream s) { rotary_backward({a.data, a.data, a.data, 1, 1, 2, 4, 7}, s); }},
    {"rotary_forward: sines is null, but 6 elements of it are needed",
     [](auto& a, Stream s) { rotary_forward({a.data, a.data, nullptr, 1, 3, 2, 4}, s); }},
    {"glu_forward: row_elems is 3, shorter than a row of 4 elements",
     [](auto& a, Stream s) { glu_forward({a.data, a.data, a.data, 1, 4, 3}, s); }},
    {"glu_backward: dup is null, but 8 elements of it are needed",
     [](auto& a, Stream s) { glu_backward({a.data, a.data, a.data, a.data, nullptr, 2, 4}, s); }},
    {"attention_forward: dropout is 1; give a probability from 0 to below 1",
     [](auto& a, Stream s) { attention_forward({a.data, a.data, a.data, a.data, {1, 2, 1, 4}, 1.0F}, s); }},
    {"attention_backward: shape.heads is -1; give 0 or more",
     [](auto& a, Stream s) { attention_backward({a.data, a.data, a.data, a.data, a.data, a.data, {1, 2, -1, 4}}, s); }},
    {"attention_forward: shape.kv_heads is 3; give a divisor of shape.heads, which is 4, or 0",
     [](auto& a, Stream s) { attention_forward({a.data, a.data, a.data, a.data, {1, 2, 4, 4, 3}}, s); }},
    {"attention_backward: shape.window is -1; give 0 or more",
     [](auto& a, Stream s) { attention_backward({a.data, a.data, a.data, a.data, a.data, a.data, {1, 2, 4, 4, 2, -1}}, s); }},
    {"attention_forward: shape.scale is -0.5; give a finite number of 0 or more",
     [](auto& a, Stream s) { attention_forward({a.data, a.data, a.data, a.data, {1, 2, 4, 4, 0, 0, -0.5F}}, s); }},
    {"attention_workspace_elems: shape.scale is inf; give a finite number of 0 or more",
     [](auto&, Stream s) { (void)attention_workspace_elems({1, 2, 4, 4, 0, 0, kInfinity}, DType::fp32, s); }},
    {"attention_backward: workspace_elems is 1; give attention_workspace_elems or more",
     [](auto& a, Stream s) { attention_backward({.qkv = a.data, .y = a.data, .log_sum_exp = a.data, .dy = a.data, .dqkv = a.data, .workspace = a.data, .shape = {1, 2, 1, 4}, .workspace_elems = 1}, s); }},
    {"attention_backward_workspace_elems: shape.seq is -2; give 0 or more",
     [](auto&, Stream s) { (void)attention_backward_workspace_elems({1, -2, 1, 4}, DType::fp32, s); }},
    {"attention_workspace_elems: dtype is fp64; give fp32, bf16 or fp16",
     [](auto&, Stream s) { (void)attention_workspace_elems({1, 2, 1, 4}, DType::fp64, s); }},
    {"cross_entropy: loss is null, but 1 elements of it are needed",
     [](auto& a, Stream s) { cross_entropy({a.data, a.tokens, nullptr, 1, 4, 1.0F, 1.0}, s); }},
    {"cross_entropy: stride is 3, shorter than a row of 4 elements",
     [](auto& a, Stream s) { cross_entropy({a.data, a.tokens, a.loss, 1, 4, 1.0F, 1.0, nullptr, 3}, s); }},
    {"cross_entropy: classes is 0, but there are 4 rows; give 1 or more",
     [](auto& a, Stream s) { cross_entropy({a.data, a.tokens, a.loss, 4, 0, 1.0F, 1.0}, s); }},
    {"vocab_statistics: statistics is null, but 6 elements of it are needed",
     [](auto& a, Stream s) { vocab_statistics({a.data, a.tokens, nullptr, 2, 3, 0}, s); }},
    {"vocab_cross_entropy: parts is 0, but there are 2 rows; give 1 or more",
     [](auto& a, Stream s) { vocab_cross_entropy({a.data, a.tokens, a.data, 0, a.loss, 2, 3, 0, 1.0F, 1.0}, s); }},
    {"vocab_cross_entropy: first_class is -3; give 0 or more",
     [](auto& a, Stream s) { vocab_cross_entropy({a.data, a.tokens, a.data, 1, a.loss, 2, 3, -3, 1.0F, 1.0}, s); }},
    {"rms_norm_forward: columns is 0, but there are 2 rows; give 1 or more",
     [](auto& a, Stream s) { rms_norm_forward({a.data, a.data, a.data, a.data, 2, 0}, s); }},
    {"rms_norm_backward: columns is 0, but there are 2 rows; give 1 or more",
     [](auto& a, Stream s) { rms_norm_backward({a.data, a.data, a.data, a.data, a.data, a.data, 2, 0}, s); }},
    {"layer_norm_forward: columns is 0, but there are 3 rows; give 1 or more",
     [](auto& a, Stream s) { layer_norm_forward({a.data, a.data, a.data, a.data, a.data, a.data, 3, 0}, s); }},
    {"layer_norm_backward: columns is 0, but there are 3 rows; give 1 or more",
     [](auto& a, Stream s) { layer_norm_backward({a.data, a.data, a.data, a.data, a.data, a.data, a.data, a.data, 3, 0}, s); }},
    {"attention_forward: shape.head_size is 0, but there are 6 rows; give 1 or more",
     [](auto& a, Stream s) { attention_forward({a.data, a.data, a.data, a.data, {1, 2, 3, 0}}, s); }},
    {"attention_backward: shape.head_size is 0, but there are 6 rows; give 1 or more",
     [](auto& a, Stream s) { attention_backward({a.data, a.data, a.data, a.data, a.data, a.data, {1, 2, 3, 0}}, s); }},
    {"rms_norm_forward: with columns of 4294967296 there are more than 2^62 elements; give the sizes "
     "of what is in memory",
     [](auto& a, Stream s) {
       constexpr std::int64_t many = std::int64_t{1} << 32;
       rms_norm_forward({a.data, a.data, a.data, nullptr, many, many}, s);
     }},
    {"embedding_forward: token_table is fp32, but position_table is fp16; give both in one dtype",
     [](auto& a, Stream s) { embedding_forward({a.tokens, a.data, Values{a.data, DType::fp16}, a.data, 1, 1, 1}, s); }},
    {"embedding_backward: tokens is null, but 6 elements of it are needed",
     [](auto& a, Stream s) { embedding_backward({nullptr, a.data, a.data, a.data, 2, 3, 1}, s); }},
    {"embedding_forward: first_token is -1; give 0 or more",
     [](auto& a, Stream s) { embedding_forward({a.tokens, a.data, nullptr, a.data, 1, 1, 1, -1}, s); }},
    {"dropout: first_elem is -4; give 0 or more",
     [](auto& a, Stream s) { dropout({.x = a.data, .y = a.data, .samples = 1, .sample_elems = 1, .p = 0.5F, .first_elem = -4}, s); }},
    {"dropout: p is 1.5; give a probability from 0 to below 1",
     [](auto& a, Stream s) { dropout({a.data, a.data, 1, 1, 1.5F}, s); }},
    {"nf4_quantise: elems is -1; give 0 or more",
     [](auto& a, Stream s) { nf4_quantise({a.data, a.bytes(), a.data, -1}, s); }},
    {"nf4_quantise: values is fp64; give fp32, bf16 or fp16",
     [](auto& a, Stream s) { nf4_quantise({ConstValues{a.data, DType::fp64}, a.bytes(), a.data, 1}, s); }},
    {"nf4_quantise: codes is null, but 5 elements of it are needed",
     [](auto& a, Stream s) { nf4_quantise({a.data, nullptr, a.data, 9}, s); }},
    {"nf4_quantise: absmax is null, but 2 elements of it are needed",
     [](auto& a, Stream s) { nf4_quantise({a.data, a.bytes(), nullptr, 65}, s); }},
    {"nf4_quantise_absmax: offset is nan; give a finite number of 0 or more",
     [](auto& a, Stream s) { nf4_quantise_absmax({a.data, kNan, a.bytes(), a.data, 1}, s); }},
    {"nf4_quantise_absmax: scales is null, but 2 elements of it are needed",
     [](auto& a, Stream s) { nf4_quantise_absmax({a.data, 1.0F, a.bytes(), nullptr, 257}, s); }},
    {"nf4_dequantise: from.first is 32; give a multiple of kNF4Block, which is 64",
     [](auto& a, Stream s) { nf4_dequantise({{a.bytes(), a.bytes(), a.data, 1.0F, 32}, a.data, 1}, s); }},
    {"nf4_dequantise: from.first is -64; give a multiple of kNF4Block, which is 64",
     [](auto& a, Stream s) { nf4_dequantise({{a.bytes(), a.bytes(), a.data, 1.0F, -64}, a.data, 1}, s); }},
    {"nf4_dequantise: from.offset is -1; give a finite number of 0 or more",
     [](auto& a, Stream s) { nf4_dequantise({{a.bytes(), a.bytes(), a.data, -1.0F}, a.data, 1}, s); }},
    {"nf4_dequantise: from.absmax_codes is null, but 2 elements of it are needed",
     [](auto& a, Stream s) { nf4_dequantise({{a.bytes(), nullptr, a.data, 1.0F}, a.data, 128}, s); }},
    {"nf4_dequantise: to is fp64; give fp32, bf16 or fp16",
     [](auto& a, Stream s) { nf4_dequantise({{a.bytes(), a.bytes(), a.data, 1.0F}, Values{a.data, DType::fp64}, 1}, s); }},
    {"int8_quantise: scales is null, but 2 elements of it are needed",
     [](auto& a, Stream s) { int8_quantise({a.data, a.signed_bytes(), nullptr, 257}, s); }},
    {"int8_dequantise: from.codes is null, but 3 elements of it are needed",
     [](auto& a, Stream s) { int8_dequantise({{nullptr, a.data}, a.data, 3}, s); }},
    {"int8_dequantise: from.first is 1; give a multiple of kNF4Block, which is 64",
     [](auto& a, Stream s) { int8_dequantise({{a.signed_bytes(), a.data, 1}, a.data, 3}, s); }},
};
// clang-format on

/// The message of the ContractError that `call` throws.
std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const ContractError& error) { return error.what(); }
  return "nothing";
}

TEST_P(PublicKernels, RefuseMismatchedArgumentsByName) {
  DeviceArray<float> memory{bench(), 64};
  DeviceArray<std::int32_t> tokens{bench(), 8};
  DeviceArray<double> loss{bench(), 1};
  const Arrays arrays{memory.data(), tokens.data(), loss.data()};
  const Bytes before(64 * sizeof(float), std::byte{0xFF});  // poison
  for (const Refusal& refusal : kRefusals) {
    EXPECT_THAT(refusal_of([&] { refusal.call(arrays, stream()); }),
                testing::StartsWith(refusal.text));
  }
  const Floats after = memory.read();
  EXPECT_EQ(std::memcmp(after.data(), before.data(), before.size()), 0);
  EXPECT_NO_THROW(stream().rethrow());
}

TEST_P(PublicKernels, RefuseAStreamWithoutKernels) {
  DeviceArray<float> y{bench(), 1};
  const OwnedStream own = device().make_compute_stream();
  for (const Stream stream : {own.get(), Stream{}}) {
    EXPECT_THAT(refusal_of([&] { scale(y.data(), 2.0F, 1, stream); }),
                testing::StartsWith("scale: this stream has no kernels; enqueue on World::"));
  }
}

TEST_P(PublicKernels, TakeEmptyArrays) {
  EXPECT_NO_THROW(add(nullptr, nullptr, nullptr, 0, stream()));
  EXPECT_NO_THROW(rms_norm_forward({nullptr, nullptr, nullptr, nullptr, 0, 0}, stream()));
  EXPECT_NO_THROW(glu_forward({nullptr, nullptr, nullptr, 0, 8}, stream()));
  EXPECT_NO_THROW(rotary_forward({nullptr, nullptr, nullptr, 0, 4, 2, 8}, stream()));
  EXPECT_NO_THROW(nf4_quantise({nullptr, nullptr, nullptr, 0}, stream()));
  EXPECT_NO_THROW(nf4_dequantise({{nullptr, nullptr, nullptr, 0.0F}, nullptr, 0}, stream()));
  EXPECT_NO_THROW(int8_dequantise({{nullptr, nullptr}, nullptr, 0}, stream()));
  stream().wait();
}

}  // namespace
}  // namespace tessera::kernels::public_functions_test
