#pragma once

#include "kernels/accumulate/accumulate.hpp"
#include "kernels/adam/adam.hpp"
#include "kernels/adamw/adamw.hpp"
#include "kernels/add/add.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/bias/bias.hpp"
#include "kernels/call/call.hpp"
#include "kernels/cast/cast.hpp"
#include "kernels/combine/combine.hpp"
#include "kernels/cross_entropy/cross_entropy.hpp"
#include "kernels/dropout/dropout.hpp"
#include "kernels/embedding/embedding.hpp"
#include "kernels/gelu/gelu.hpp"
#include "kernels/glu/glu.hpp"
#include "kernels/layer_norm/layer_norm.hpp"
#include "kernels/lion/lion.hpp"
#include "kernels/matmul/matmul.hpp"
#include "kernels/non_finite/non_finite.hpp"
#include "kernels/normal/normal.hpp"
#include "kernels/quantised/quantised.hpp"
#include "kernels/rms_norm/rms_norm.hpp"
#include "kernels/rotary/rotary.hpp"
#include "kernels/sgd/sgd.hpp"
#include "kernels/squared_norm/squared_norm.hpp"
#include "kernels/step_scalars/step_scalars.hpp"
#include "kernels/update/round_weights.hpp"
#include "kernels/vocab_cross_entropy/vocab_cross_entropy.hpp"
#include "tessera/device/device.hpp"

namespace tessera::kernels {

/// One backend's kernels. Code above calls kernels through the table, so it names no backend.
struct Table {
  AccumulateKernel* accumulate;
  ScaleKernel* scale;
  CallKernel* call;
  CastKernel* cast;
  AdamWKernel* adamw;
  AdamKernel* adam;
  LionKernel* lion;
  SGDKernel* sgd;
  RoundWeightsKernel* round_weights;
  SquaredNormKernel* squared_norm;
  FinishStepKernel* finish_step;
  FindNonFiniteKernel* find_non_finite;
  MatMulKernel* matmul;
  AddBiasKernel* add_bias;
  BiasGradientKernel* bias_gradient;
  LayerNormForwardKernel* layer_norm_forward;
  LayerNormBackwardKernel* layer_norm_backward;
  RMSNormForwardKernel* rms_norm_forward;
  RMSNormBackwardKernel* rms_norm_backward;
  RotaryKernel* rotary_forward;
  RotaryKernel* rotary_backward;
  GLUForwardKernel* glu_forward;
  GLUBackwardKernel* glu_backward;
  GeluForwardKernel* gelu_forward;
  GeluBackwardKernel* gelu_backward;
  AddKernel* add;
  AttentionForwardKernel* attention_forward;
  AttentionBackwardKernel* attention_backward;
  AttentionWorkspace* attention_workspace_elems;
  AttentionWorkspace* attention_backward_workspace_elems;
  EmbeddingForwardKernel* embedding_forward;
  EmbeddingBackwardKernel* embedding_backward;
  CrossEntropyKernel* cross_entropy;
  VocabStatisticsKernel* vocab_statistics;
  VocabCrossEntropyKernel* vocab_cross_entropy;
  DropoutKernel* dropout;
  NF4QuantiseKernel* nf4_quantise;
  NF4QuantiseAbsmaxKernel* nf4_quantise_absmax;
  NF4DequantiseKernel* nf4_dequantise;
  Int8QuantiseKernel* int8_quantise;
  Int8DequantiseKernel* int8_dequantise;
  CombineKernel* combine;
  NormalKernel* fill_normal;
  std::int64_t row_multiple;  ///< kernels/support/row_multiple.hpp
};

[[nodiscard]] const Table& cpu_table() noexcept;

/// The kernels for streams of a device of this kind, cpu or cuda. ConfigError for cuda if there is
/// no CUDA module.
[[nodiscard]] const Table& table_of(DeviceKind kind);

/// Exported by the CUDA module as "tessera_cuda_kernels".
using CudaTable = const Table*();

}  // namespace tessera::kernels
