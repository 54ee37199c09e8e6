#include "kernels/attention/cuda/attention_cudnn.hpp"

#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <compare>
#include <memory>
#include <string>
#include <unordered_map>

#include "device/cuda/cuda_check.hpp"
#include "device/cuda/cuda_configured.hpp"
#include "device/cuda/cuda_stream.hpp"
#include "device/cuda/cuda_use.hpp"
#include "device/cuda_library.hpp"
#include "kernels/attention/cudnn_rule.hpp"
#include "kernels/support/lru_cache.hpp"
#include "tessera/base/error.hpp"
#include "tessera/device/device.hpp"

namespace tessera::kernels::cuda {
namespace {

namespace graph = cudnn_frontend::graph;

constexpr int kLeastVersion = 91501;  // earlier versions cannot replay graphs of odd lengths
constexpr std::size_t kMostPlans = 64;
constexpr std::uintptr_t kWorkspaceAlignment = 256;

enum class Pass : std::uint8_t { forward, backward };

/// One call of cuDNN: `heads` heads of each of `samples` samples.
struct Piece {
  Pass pass;
  DType dtype;
  std::int64_t samples;
  std::int64_t heads;
  AttentionShape shape;    // of the whole attention
  device::SumOrder order;  // of the backward

  [[nodiscard]] std::int64_t hidden() const noexcept { return shape.heads * shape.head_size; }
  [[nodiscard]] auto key() const noexcept {
    return std::array{std::int64_t{pass == Pass::backward},
                      std::int64_t{dtype == DType::bf16},
                      std::int64_t{order == device::SumOrder::fixed},
                      samples,
                      heads,
                      shape.heads,
                      shape.seq,
                      shape.head_size};
  }
};

std::string name_of(const Piece& piece) {
  return fmt::format("attention's {} of {} x {} heads, {} rows of {}, {}",
                     piece.pass == Pass::forward ? "forward" : "backward", piece.samples,
                     piece.heads, piece.shape.seq, piece.shape.head_size, to_string(piece.dtype));
}

[[noreturn]] void fail(const std::string& what, const std::string& why) {
  throw DeviceError{fmt::format(
      "cuDNN failed in {}: {}; configure with -DTESSERA_CUDNN=OFF to do without it", what, why)};
}

void check(const cudnn_frontend::error_object& error, const Piece& piece) {
  if (error.is_bad()) { fail(name_of(piece), error.err_msg); }
}

void check(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) { fail(call, cudnnGetErrorString(status)); }
}

/// The tensors of a graph, by number.
enum Id : std::int64_t { kQ = 1, kK, kV, kY, kLogSumExp, kDy, kDq, kDk, kDv };

/// A tensor [samples, heads, seq, head_size]: the rows of a sample lie `row_elems` apart, the heads
/// of a row side by side.
void describe(graph::Tensor_attributes& tensor, Id id, const Piece& piece, std::int64_t row_elems) {
  const AttentionShape& shape = piece.shape;
  tensor.set_uid(id)
      .set_dim({piece.samples, piece.heads, shape.seq, shape.head_size})
      .set_stride({shape.seq * row_elems, shape.head_size, row_elems, 1});
}

/// A tensor [samples, heads, seq, 1] in fp32. cuDNN wants it without gaps, so a piece with only
/// some of the heads covers one sample.
void describe_log_sum_exp(graph::Tensor_attributes& tensor, const Piece& piece) {
  const std::int64_t seq = piece.shape.seq;
  tensor.set_uid(kLogSumExp)
      .set_dim({piece.samples, piece.heads, seq, 1})
      .set_stride({piece.heads * seq, seq, 1, 1})
      .set_data_type(cudnn_frontend::DataType_t::FLOAT);
}

float scale_of(const Piece& piece) {
  return 1.0F / std::sqrt(static_cast<float>(piece.shape.head_size));
}

class GraphMaker {
 public:
  explicit GraphMaker(const Piece& piece) : piece_{piece} {
    using cudnn_frontend::DataType_t;
    graph_->set_io_data_type(piece.dtype == DType::bf16 ? DataType_t::BFLOAT16 : DataType_t::HALF)
        .set_intermediate_data_type(DataType_t::FLOAT)
        .set_compute_data_type(DataType_t::FLOAT);
  }

  [[nodiscard]] std::shared_ptr<graph::Graph> forward() const {
    graph::SDPA_attributes options;
    options.set_name("attention")
        .set_generate_stats(true)
        .set_diagonal_alignment(cudnn_frontend::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0)
        .set_attn_scale(scale_of(piece_));
    auto [y, log_sum_exp] = graph_->sdpa(packed(kQ), packed(kK), packed(kV), options);
    y->set_output(true);
    describe(*y, kY, piece_, piece_.hidden());
    log_sum_exp->set_output(true);
    describe_log_sum_exp(*log_sum_exp, piece_);
    return graph_;
  }

  [[nodiscard]] std::shared_ptr<graph::Graph> backward() const {
    graph::SDPA_backward_attributes options;
    options.set_name("attention_backward")
        .set_diagonal_alignment(cudnn_frontend::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0)
        .set_attn_scale(scale_of(piece_))
        .set_deterministic_algorithm(piece_.order == device::SumOrder::fixed);
    graph::Tensor_attributes log_sum_exp;
    describe_log_sum_exp(log_sum_exp, piece_);
    auto [dq, dk, dv] =
        graph_->sdpa_backward(packed(kQ), packed(kK), packed(kV), tensor(kY, piece_.hidden()),
                              tensor(kDy, piece_.hidden()), graph_->tensor(log_sum_exp), options);
    write_packed(dq, kDq);
    write_packed(dk, kDk);
    write_packed(dv, kDv);
    return graph_;
  }

 private:
  using Tensor = std::shared_ptr<graph::Tensor_attributes>;

  [[nodiscard]] Tensor tensor(Id id, std::int64_t row_elems) const {
    graph::Tensor_attributes attributes;
    describe(attributes, id, piece_, row_elems);
    return graph_->tensor(attributes);
  }
  [[nodiscard]] Tensor packed(Id id) const { return tensor(id, 3 * piece_.hidden()); }
  void write_packed(const Tensor& output, Id id) const {
    output->set_output(true);
    describe(*output, id, piece_, 3 * piece_.hidden());
  }

  const Piece& piece_;
  std::shared_ptr<graph::Graph> graph_ = std::make_shared<graph::Graph>();
};

struct Plan {
  std::shared_ptr<graph::Graph> graph;
  std::size_t workspace_bytes = 0;
  bool has_run = false;
};

device::CudaLibrary cudnn_library() {
  return {"cuDNN",
          static_cast<int>(cudnnGetVersion()),
          device::file_of(reinterpret_cast<const void*>(&cudnnGetVersion)),
          CUDNN_VERSION,
          tessera::cuda::configured_files().cudnn,
          kLeastVersion};
}

int major_of(int ordinal) {
  int major = 0;
  tessera::cuda::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal),
                       "cudaDeviceGetAttribute");
  return major;
}

using Arrays = std::unordered_map<std::int64_t, void*>;

/// cuDNN on one stream: its handle, and the plans of recent shapes.
class Cudnn final : public tessera::cuda::StreamExtension {
 public:
  Cudnn() {
    tessera::cuda::start_library([&] { check(cudnnCreate(&handle_), "cudnnCreate"); });
  }
  ~Cudnn() override { (void)cudnnDestroy(handle_); }

  Plan& plan_of(const Piece& piece) {
    return plans_.get(piece.key(), [&] { return make_plan(piece); });
  }

  void run(const Piece& piece, Arrays& arrays, float* workspace, cudaStream_t stream) {
    Plan& plan = plan_of(piece);
    const auto address = reinterpret_cast<std::uintptr_t>(workspace);
    auto* const aligned = reinterpret_cast<std::byte*>(workspace) +
                          (round_up(address, kWorkspaceAlignment) - address);
    check(cudnnSetStream(handle_, stream), "cudnnSetStream");
    const auto execute = [&] { check(plan.graph->execute(handle_, arrays, aligned), piece); };
    // The first launch loads cuDNN's kernels.
    plan.has_run ? execute() : tessera::cuda::start_library(execute);
    plan.has_run = true;
  }

 private:
  [[nodiscard]] Plan make_plan(const Piece& piece) const {
    const GraphMaker maker{piece};
    Plan plan;
    plan.graph = piece.pass == Pass::forward ? maker.forward() : maker.backward();
    tessera::cuda::start_library(
        [&] { check(plan.graph->build(handle_, {cudnn_frontend::HeurMode_t::A}), piece); });
    std::int64_t bytes = 0;
    check(plan.graph->get_workspace_size(bytes), piece);
    plan.workspace_bytes = static_cast<std::size_t>(bytes);
    return plan;
  }

  cudnnHandle_t handle_ = nullptr;
  LruCache<decltype(Piece{}.key()), Plan> plans_{kMostPlans};
};

/// The most heads that fit at a time into a workspace of `bytes`: the count of cudnn_rule.hpp, or
/// fewer if this version of cuDNN needs more memory per head.
Piece largest_piece(Cudnn& cudnn, Pass pass, const AttentionShape& shape, DType dtype,
                    std::size_t bytes, const device::StreamKernels& on) {
  const device::SumOrder order =
      pass == Pass::forward ? device::SumOrder::fixed
                            : cudnn_order(shape, on.attention_gradients, on.attention_bytes);
  const std::int64_t heads =
      pass == Pass::forward ? shape.batch * shape.heads : cudnn_heads_in(shape, bytes, order);
  Piece piece{pass, dtype, 1, std::min(heads, shape.heads), shape, order};
  if (heads > shape.heads) {
    const std::int64_t rounds = ceil_div(shape.batch, heads / shape.heads);
    piece.samples = ceil_div(shape.batch, rounds);
  }
  const std::size_t workspace = bytes - kWorkspaceAlignment;
  while (cudnn.plan_of(piece).workspace_bytes > workspace) {
    if (piece.samples == 1 && piece.heads == 1) {
      fail(name_of(piece), fmt::format("it needs a workspace of {} bytes and has {}",
                                       cudnn.plan_of(piece).workspace_bytes, workspace));
    }
    std::int64_t& larger = piece.samples > 1 ? piece.samples : piece.heads;
    larger = ceil_div(larger, std::int64_t{2});
  }
  return piece;
}

/// Calls body(piece, sample, head) for pieces that start at (sample, head) and together cover all
/// heads of all samples.
template <class Body>
void for_pieces(const Piece& largest, Body&& body) {
  const AttentionShape& shape = largest.shape;
  for (std::int64_t sample = 0; sample < shape.batch; sample += largest.samples) {
    for (std::int64_t head = 0; head < shape.heads; head += largest.heads) {
      Piece piece = largest;
      piece.samples = std::min(largest.samples, shape.batch - sample);
      piece.heads = std::min(largest.heads, shape.heads - head);
      body(piece, sample, head);
    }
  }
}

/// The arrays of the whole attention, offset to the piece that starts at (sample, head).
struct Corner {
  const Piece& piece;
  std::int64_t sample;
  std::int64_t head;

  [[nodiscard]] void* packed(ConstValues qkv, std::int64_t part) const {
    return at(qkv, (3 * sample * piece.shape.seq + part) * piece.hidden());
  }
  [[nodiscard]] void* rows(ConstValues values) const {
    return at(values, sample * piece.shape.seq * piece.hidden());
  }
  [[nodiscard]] void* statistics(const float* log_sum_exp) const {
    return const_cast<float*>(log_sum_exp + (sample * piece.shape.heads + head) * piece.shape.seq);
  }

 private:
  // cuDNN takes inputs and outputs as pointers of one type.
  [[nodiscard]] void* at(ConstValues values, std::int64_t elems) const {
    return const_cast<void*>(values.at(elems + head * piece.shape.head_size).data);
  }
};

const device::StreamKernels& kernels_on(Stream stream) {
  return stream.state()->kernels();
}

/// What a plan counts for the stream.
std::size_t planned_bytes(const AttentionShape& shape, DType dtype,
                          const device::StreamKernels& on) {
  return cudnn_workspace_bytes(shape, dtype, on.attention_gradients, on.attention_bytes);
}

bool is_aligned(std::initializer_list<const void*> arrays) noexcept {
  return std::all_of(arrays.begin(), arrays.end(), [](const void* data) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
  });
}

}  // namespace

bool cudnn_computes(const AttentionForward& args, Stream stream) {
  return args.dropout == 0.0F && args.first_key == nullptr &&
         suits_cudnn(args.shape, args.qkv.dtype, kernels_on(stream).attention_bytes) &&
         is_aligned({args.qkv.data, args.y.data, args.log_sum_exp, args.workspace});
}

bool cudnn_computes(const AttentionBackward& args, Stream stream) {
  const device::StreamKernels& on = kernels_on(stream);
  return args.dropout == 0.0F && args.first_key == nullptr &&
         suits_cudnn(args.shape, args.qkv.dtype, on.attention_bytes) &&
         is_aligned({args.qkv.data, args.y.data, args.dy.data, args.dqkv.data, args.log_sum_exp,
                     args.workspace}) &&
         (cudnn_order(args.shape, on.attention_gradients, on.attention_bytes) ==
              device::SumOrder::any ||
          has_deterministic_cudnn(cudnnGetVersion(),
                                  major_of(tessera::cuda::cuda_stream(stream).ordinal())));
}

void cudnn_attention_forward(const AttentionForward& args, Stream stream) {
  tessera::cuda::CudaStream& cuda = tessera::cuda::cuda_stream(stream);
  Cudnn& cudnn = cuda.extension<Cudnn>();
  const device::StreamKernels& on = kernels_on(stream);
  const Piece largest = largest_piece(cudnn, Pass::forward, args.shape, args.qkv.dtype,
                                      planned_bytes(args.shape, args.qkv.dtype, on), on);
  for_pieces(largest, [&](const Piece& piece, std::int64_t sample, std::int64_t head) {
    const Corner corner{piece, sample, head};
    Arrays arrays{{kQ, corner.packed(args.qkv, 0)},
                  {kK, corner.packed(args.qkv, 1)},
                  {kV, corner.packed(args.qkv, 2)},
                  {kY, corner.rows(args.y)},
                  {kLogSumExp, corner.statistics(args.log_sum_exp)}};
    cudnn.run(piece, arrays, args.workspace, cuda.open());
  });
}

void cudnn_attention_backward(const AttentionBackward& args, Stream stream) {
  tessera::cuda::CudaStream& cuda = tessera::cuda::cuda_stream(stream);
  Cudnn& cudnn = cuda.extension<Cudnn>();
  const device::StreamKernels& on = kernels_on(stream);
  const std::size_t bytes = args.workspace_elems == 0
                                ? planned_bytes(args.shape, args.qkv.dtype, on)
                                : static_cast<std::size_t>(args.workspace_elems) * sizeof(float);
  const Piece largest = largest_piece(cudnn, Pass::backward, args.shape, args.qkv.dtype, bytes, on);
  for_pieces(largest, [&](const Piece& piece, std::int64_t sample, std::int64_t head) {
    const Corner corner{piece, sample, head};
    Arrays arrays{{kQ, corner.packed(args.qkv, 0)},
                  {kK, corner.packed(args.qkv, 1)},
                  {kV, corner.packed(args.qkv, 2)},
                  {kY, corner.rows(args.y)},
                  {kLogSumExp, corner.statistics(args.log_sum_exp)},
                  {kDy, corner.rows(args.dy)},
                  {kDq, corner.packed(args.dqkv, 0)},
                  {kDk, corner.packed(args.dqkv, 1)},
                  {kDv, corner.packed(args.dqkv, 2)}};
    cudnn.run(piece, arrays, args.workspace, cuda.open());
  });
}

}  // namespace tessera::kernels::cuda

extern "C" {

void tessera_cudnn_look(tessera::CudaMachine& machine) {
  const std::string frontend = "frontend " + tessera::device::version_text(CUDNN_FRONTEND_VERSION);
  machine.libraries.push_back(describe(tessera::kernels::cuda::cudnn_library(), frontend));
}

void tessera_cudnn_require() {
  tessera::device::require_version(tessera::kernels::cuda::cudnn_library());
}
}
