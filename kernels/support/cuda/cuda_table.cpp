#include "kernels/support/row_multiple.hpp"
#include "kernels/table.hpp"

extern "C" const tessera::kernels::Table* tessera_cuda_kernels() {
  namespace cuda = tessera::kernels::cuda;
  static constexpr tessera::kernels::Table table{
      .accumulate = cuda::accumulate,
      .scale = cuda::scale,
      .call = cuda::call,
      .cast = cuda::cast,
      .adamw = cuda::adamw,
      .adam = cuda::adam,
      .lion = cuda::lion,
      .sgd = cuda::sgd,
      .round_weights = cuda::round_weights,
      .squared_norm = cuda::squared_norm,
      .finish_step = cuda::finish_step,
      .find_non_finite = cuda::find_non_finite,
      .matmul = cuda::matmul,
      .add_bias = cuda::add_bias,
      .bias_gradient = cuda::bias_gradient,
      .layer_norm_forward = cuda::layer_norm_forward,
      .layer_norm_backward = cuda::layer_norm_backward,
      .rms_norm_forward = cuda::rms_norm_forward,
      .rms_norm_backward = cuda::rms_norm_backward,
      .rotary_forward = cuda::rotary_forward,
      .rotary_backward = cuda::rotary_backward,
      .glu_forward = cuda::glu_forward,
      .glu_backward = cuda::glu_backward,
      .gelu_forward = cuda::gelu_forward,
      .gelu_backward = cuda::gelu_backward,
      .add = cuda::add,
      .attention_forward = cuda::attention_forward,
      .attention_backward = cuda::attention_backward,
      .attention_workspace_elems = cuda::attention_workspace_elems,
      .attention_backward_workspace_elems = cuda::attention_backward_workspace_elems,
      .embedding_forward = cuda::embedding_forward,
      .embedding_backward = cuda::embedding_backward,
      .cross_entropy = cuda::cross_entropy,
      .vocab_statistics = cuda::vocab_statistics,
      .vocab_cross_entropy = cuda::vocab_cross_entropy,
      .dropout = cuda::dropout,
      .combine = cuda::combine,
      .fill_normal = cuda::fill_normal,
      .row_multiple = tessera::kernels::row_multiple_of(tessera::DeviceKind::cuda),
  };
  return &table;
}
