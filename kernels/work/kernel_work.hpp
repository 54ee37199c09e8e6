#pragma once

#include <span>

#include "kernels/table.hpp"
#include "tessera/trace/work_log.hpp"

namespace tessera::kernels {

/// Names a member of the table.
template <auto Member>
struct Of {};

// The work of a kernel call: the FLOPs and bytes that its operation needs, in any implementation.
// An addition and a multiplication are one FLOP each, and so is an exponential or a root. Attention
// counts the scores that are not masked, T (T + 1) / 2 per head, and five products of them in
// backward where forward has two. Bytes count each array once. Names distinguish variants of a
// kernel: a product's transpositions, bias and epilogue, moments of 16 bits, classes in parts. A
// table of runs or of norms is one piece of work, named after the largest.

using trace::KernelWork;

KernelWork work_of(Of<&Table::accumulate>, Values to, ConstValues from, std::int64_t elems);
KernelWork work_of(Of<&Table::scale>, Values to, float factor, std::int64_t elems);
KernelWork work_of(Of<&Table::cast>, View to, ConstView from);
KernelWork work_of(Of<&Table::adamw>, std::span<const RuledRun<AdamW>> runs, const StepScalars*);
KernelWork work_of(Of<&Table::adam>, std::span<const RuledRun<Adam>> runs, const StepScalars*);
KernelWork work_of(Of<&Table::lion>, std::span<const RuledRun<Lion>> runs, const StepScalars*);
KernelWork work_of(Of<&Table::sgd>, std::span<const RuledRun<SGD>> runs, const StepScalars*);
KernelWork work_of(Of<&Table::round_weights>, const UpdateRun& run, const StepScalars*);
KernelWork work_of(Of<&Table::squared_norm>, std::span<const NormTerm> terms);
KernelWork work_of(Of<&Table::finish_step>, StepScalars*, const double*, const FinishStep& step);
KernelWork work_of(Of<&Table::matmul>, const MatMul& product);
KernelWork work_of(Of<&Table::add_bias>, Values y, ConstValues bias, std::int64_t rows,
                   std::int64_t columns);
KernelWork work_of(Of<&Table::bias_gradient>, ConstValues dy, Values dbias, std::int64_t rows,
                   std::int64_t columns, Write write);
KernelWork work_of(Of<&Table::layer_norm_forward>, const LayerNormForward& args);
KernelWork work_of(Of<&Table::layer_norm_backward>, const LayerNormBackward& args);
KernelWork work_of(Of<&Table::rms_norm_forward>, const RMSNormForward& args);
KernelWork work_of(Of<&Table::rms_norm_backward>, const RMSNormBackward& args);
KernelWork work_of(Of<&Table::rotary_forward>, const Rotary& args);
KernelWork work_of(Of<&Table::rotary_backward>, const Rotary& args);
KernelWork work_of(Of<&Table::swiglu_forward>, const SwiGLUForward& args);
KernelWork work_of(Of<&Table::swiglu_backward>, const SwiGLUBackward& args);
KernelWork work_of(Of<&Table::gelu_forward>, ConstValues x, Values y, std::int64_t elems);
KernelWork work_of(Of<&Table::gelu_backward>, ConstValues x, ConstValues dy, Values dx,
                   std::int64_t elems);
KernelWork work_of(Of<&Table::add>, ConstValues a, ConstValues b, Values y, std::int64_t elems);
KernelWork work_of(Of<&Table::attention_forward>, const AttentionForward& args);
KernelWork work_of(Of<&Table::attention_backward>, const AttentionBackward& args);
KernelWork work_of(Of<&Table::embedding_forward>, const EmbeddingForward& args);
KernelWork work_of(Of<&Table::embedding_backward>, const EmbeddingBackward& args);
KernelWork work_of(Of<&Table::cross_entropy>, const CrossEntropy& args);
KernelWork work_of(Of<&Table::vocab_statistics>, const VocabStatistics& args);
KernelWork work_of(Of<&Table::vocab_cross_entropy>, const VocabCrossEntropy& args);
KernelWork work_of(Of<&Table::dropout>, const Dropout& args);

}  // namespace tessera::kernels
