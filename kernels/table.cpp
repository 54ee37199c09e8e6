#include "kernels/table.hpp"

#include "device/cuda_module.hpp"
#include "kernels/support/row_multiple.hpp"

namespace tessera::kernels {

const Table& cpu_table() noexcept {
  static constexpr Table table{
      .accumulate = cpu::accumulate,
      .scale = cpu::scale,
      .call = cpu::call,
      .cast = cpu::cast,
      .adamw = cpu::adamw,
      .adam = cpu::adam,
      .lion = cpu::lion,
      .sgd = cpu::sgd,
      .round_weights = cpu::round_weights,
      .squared_norm = cpu::squared_norm,
      .finish_step = cpu::finish_step,
      .find_non_finite = cpu::find_non_finite,
      .matmul = cpu::matmul,
      .add_bias = cpu::add_bias,
      .bias_gradient = cpu::bias_gradient,
      .layer_norm_forward = cpu::layer_norm_forward,
      .layer_norm_backward = cpu::layer_norm_backward,
      .rms_norm_forward = cpu::rms_norm_forward,
      .rms_norm_backward = cpu::rms_norm_backward,
      .rotary_forward = cpu::rotary_forward,
      .rotary_backward = cpu::rotary_backward,
      .glu_forward = cpu::glu_forward,
      .glu_backward = cpu::glu_backward,
      .gelu_forward = cpu::gelu_forward,
      .gelu_backward = cpu::gelu_backward,
      .add = cpu::add,
      .attention_forward = cpu::attention_forward,
      .attention_backward = cpu::attention_backward,
      .attention_workspace_elems = cpu::attention_workspace_elems,
      .attention_backward_workspace_elems = cpu::attention_workspace_elems,
      .embedding_forward = cpu::embedding_forward,
      .embedding_backward = cpu::embedding_backward,
      .cross_entropy = cpu::cross_entropy,
      .vocab_statistics = cpu::vocab_statistics,
      .vocab_cross_entropy = cpu::vocab_cross_entropy,
      .dropout = cpu::dropout,
      .nf4_quantise = cpu::nf4_quantise,
      .nf4_quantise_absmax = cpu::nf4_quantise_absmax,
      .nf4_dequantise = cpu::nf4_dequantise,
      .int8_quantise = cpu::int8_quantise,
      .int8_dequantise = cpu::int8_dequantise,
      .combine = cpu::combine,
      .fill_normal = cpu::fill_normal,
      .row_multiple = row_multiple_of(DeviceKind::cpu),
  };
  return table;
}

const Table& table_of(DeviceKind kind) {
  if (kind == DeviceKind::cpu) { return cpu_table(); }
  return *device::CudaModule::get().function<CudaTable>("tessera_cuda_kernels")();
}

}  // namespace tessera::kernels
