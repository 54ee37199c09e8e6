// A CUDA trainer as people write them, plain and under Tessera: own kernels, cuBLAS for products,
// Thrust for sorting and for the element-wise rest. It learns which byte follows eight others, from
// its own source.
//
//   cuda_trainer [strategy = zero3] [ranks = 2] [steps = 60]
//   cuda_trainer --plan [strategy] [ranks]            memory alone: needs no GPU
//   cuda_trainer --without-kernels [strategy] [ranks] every call of Tessera's, no kernel of its own
//
// `train_plain` owns its parameters, gradients and moments, and updates them itself;
// `train_wrapped` is the same trainer with all of that left to Tessera, on ranks that share the
// GPUs out. Both see the same batches, and their losses are equal but for rounding.
// docs/cuda-trainer.md goes through it.
#include <cublas_v2.h>
#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/system/cuda/execution_policy.h>
#include <thrust/transform.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tessera.hpp"

namespace {

constexpr int kContext = 8;
constexpr int kBytes = 256;
constexpr int kEmbedding = 24;
constexpr int kHidden = 509;  // no number of ranks divides it
constexpr int kBatch = 240;   // windows a step, of all ranks
constexpr int kInputs = kContext * kEmbedding;
constexpr float kRate = 3e-3F;
constexpr std::size_t kScratchBytes = std::size_t{4} << 20;

void check(cudaError_t status) {
  if (status != cudaSuccess) { throw std::runtime_error{cudaGetErrorString(status)}; }
}
void check(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) { throw std::runtime_error{cublasGetStatusString(status)}; }
}

// ------------------------------------------------------------------------------ the computations
// Both trainers use them alike: pointers in, pointers out, everything on one stream.

/// Memory for Thrust's temporaries: cudaMalloc would wait for the device at every sort.
struct Scratch {
  using value_type = char;
  char* allocate(std::ptrdiff_t bytes) {
    const std::size_t at = used;
    used += (static_cast<std::size_t>(bytes) + 255) / 256 * 256;
    if (used > kScratchBytes) { throw std::runtime_error{"Thrust needs more than kScratchBytes"}; }
    ++pieces;
    return memory + at;
  }
  void deallocate(char* /*at*/, std::size_t /*bytes*/) {
    if (--pieces == 0) { used = 0; }  // the next call's, behind this one's in the stream
  }
  char* memory;
  std::size_t used = 0;
  int pieces = 0;
};

/// Whether computations launch kernels, or nothing: where only memory is counted.
enum class Kernels { run, left_out };

/// What the computations need: a stream, cuBLAS on it, and scratch memory.
class Gpu {
 public:
  Gpu(Kernels kernels, cudaStream_t stream, void* scratch, void* workspace)
      : kernels_{kernels}, stream_{stream}, scratch_{static_cast<char*>(scratch)} {
    if (!runs()) { return; }
    check(cublasCreate(&blas_));
    check(cublasSetStream(blas_, stream_));
    check(cublasSetWorkspace(blas_, workspace, kScratchBytes));  // else it takes memory of its own
  }
  ~Gpu() {
    if (runs()) { (void)cublasDestroy(blas_); }
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  [[nodiscard]] bool runs() const { return kernels_ == Kernels::run; }
  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  [[nodiscard]] auto thrust() { return thrust::cuda::par_nosync(scratch_).on(stream_); }

  /// Row-major c[m, n] = a[m, k] b[k, n] + beta c; a and b may be transposed as they are stored.
  void multiply(int m, int n, int k, const float* a, bool transpose_a, const float* b,
                bool transpose_b, float* c, float beta) {
    const float one = 1.0F;
    check(cublasSgemm(blas_, transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                      transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, n, m, k, &one, b,
                      transpose_b ? k : n, a, transpose_a ? m : k, &beta, c, n));
  }

 private:
  Kernels kernels_;
  cudaStream_t stream_;
  Scratch scratch_;
  cublasHandle_t blas_ = nullptr;
};

__global__ void gather_rows(const float* table, const int* tokens, float* x, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count * kEmbedding) {
    x[i] = table[tokens[i / kEmbedding] * kEmbedding + i % kEmbedding];
  }
}

/// Adds the rows of dx that belong to one token: they lie side by side in `places`, in order.
__global__ void add_rows(const int* tokens, const int* places, const float* dx, float* dtable,
                         int count) {
  const int first = static_cast<int>(blockIdx.x);
  if (first > 0 && tokens[first - 1] == tokens[first]) { return; }
  float sum = 0.0F;
  for (int i = first; i < count && tokens[i] == tokens[first]; ++i) {
    sum += dx[places[i] * kEmbedding + threadIdx.x];
  }
  dtable[tokens[first] * kEmbedding + threadIdx.x] += sum;
}

__global__ void add_columns(const float* dy, float* db, int rows, int columns) {
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (c >= columns) { return; }
  float sum = 0.0F;
  for (int r = 0; r < rows; ++r) { sum += dy[r * columns + c]; }
  db[c] += sum;
}

/// A block a row of logits, which become the gradient of the mean loss; each row's loss.
__global__ void cross_entropy(float* logits, const int* targets, double* losses, int rows) {
  __shared__ float values[kBytes];
  float* const row = logits + blockIdx.x * kBytes;
  const int c = static_cast<int>(threadIdx.x);
  values[c] = row[c];
  __syncthreads();
  float most = values[0];
  for (int i = 1; i < kBytes; ++i) { most = fmaxf(most, values[i]); }
  float sum = 0.0F;
  for (int i = 0; i < kBytes; ++i) { sum += expf(values[i] - most); }
  const int target = targets[blockIdx.x];
  if (c == target) { losses[blockIdx.x] = static_cast<double>(logf(sum) + most - values[c]); }
  row[c] = (expf(values[c] - most) / sum - (c == target ? 1.0F : 0.0F)) / static_cast<float>(rows);
}

__global__ void mean(const double* losses, double* loss, int rows) {
  double sum = 0.0;
  for (int r = 0; r < rows; ++r) { sum += losses[r]; }
  *loss = sum / rows;
}

struct Tanh {
  __device__ float operator()(float x) const { return tanhf(x); }
};
struct TanhGradient {
  __device__ float operator()(float y, float dy) const { return dy * (1.0F - y * y); }
};
struct AddBias {
  float* y;
  const float* b;
  int columns;
  __device__ void operator()(int i) const { y[i] += b[i % columns]; }
};

constexpr unsigned blocks(int elems) {
  return static_cast<unsigned>((elems + 255) / 256);
}

void embed(Gpu& gpu, const int* tokens, const float* table, float* x, int rows) {
  if (!gpu.runs()) { return; }
  const int count = rows * kContext;
  gather_rows<<<blocks(count * kEmbedding), 256, 0, gpu.stream()>>>(table, tokens, x, count);
  check(cudaGetLastError());
}

/// Sums in the order of the places: the same bits in every run, without atomic additions.
void embed_backward(Gpu& gpu, const int* tokens, int* sorted, int* places, const float* dx,
                    float* dtable, int rows) {
  if (!gpu.runs()) { return; }
  const int count = rows * kContext;
  thrust::sequence(gpu.thrust(), places, places + count);
  check(cudaMemcpyAsync(sorted, tokens, sizeof(int) * static_cast<std::size_t>(count),
                        cudaMemcpyDeviceToDevice, gpu.stream()));
  thrust::stable_sort_by_key(gpu.thrust(), sorted, sorted + count, places);
  add_rows<<<static_cast<unsigned>(count), kEmbedding, 0, gpu.stream()>>>(sorted, places, dx,
                                                                          dtable, count);
  check(cudaGetLastError());
}

void linear(Gpu& gpu, const float* x, const float* w, const float* b, float* y, int rows, int in,
            int out) {
  if (!gpu.runs()) { return; }
  gpu.multiply(rows, out, in, x, false, w, false, y, 0.0F);
  thrust::for_each_n(gpu.thrust(), thrust::counting_iterator<int>{0}, rows * out,
                     AddBias{y, b, out});
}

/// Adds into dw and db; overwrites dx.
void linear_backward(Gpu& gpu, const float* x, const float* w, const float* dy, float* dw,
                     float* db, float* dx, int rows, int in, int out) {
  if (!gpu.runs()) { return; }
  gpu.multiply(in, out, rows, x, true, dy, false, dw, 1.0F);
  add_columns<<<blocks(out), 256, 0, gpu.stream()>>>(dy, db, rows, out);
  check(cudaGetLastError());
  gpu.multiply(rows, in, out, dy, false, w, true, dx, 0.0F);
}

void tanh_forward(Gpu& gpu, float* y, int rows) {
  if (!gpu.runs()) { return; }
  thrust::transform(gpu.thrust(), y, y + rows * kHidden, y, Tanh{});
}
void tanh_backward(Gpu& gpu, const float* y, float* dy, int rows) {
  if (!gpu.runs()) { return; }
  thrust::transform(gpu.thrust(), y, y + rows * kHidden, dy, dy, TanhGradient{});
}

void loss_and_gradient(Gpu& gpu, float* logits, const int* targets, double* losses, double* loss,
                       int rows) {
  if (!gpu.runs()) { return; }
  cross_entropy<<<static_cast<unsigned>(rows), kBytes, 0, gpu.stream()>>>(logits, targets, losses,
                                                                          rows);
  mean<<<1, 1, 0, gpu.stream()>>>(losses, loss, rows);
  check(cudaGetLastError());
}

// --------------------------------------------------------------------------------- what both need

/// Takes memory of the device: `bytes`, called `name`.
using Take = std::function<void*(std::size_t bytes, const char* name)>;

/// What a step works in, for so many windows.
struct Work {
  Work(const Take& take, int windows) : rows{windows} {
    const auto floats = [&](int columns, const char* name) {
      const auto elems = static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
      return static_cast<float*>(take(sizeof(float) * elems, name));
    };
    x = floats(kInputs, "embedded");
    y = floats(kHidden, "hidden");
    logits = floats(kBytes, "logits");
    dx = floats(kInputs, "gradient of embedded");
    dy = floats(kHidden, "gradient of hidden");
    losses = reinterpret_cast<double*>(floats(2, "losses"));
    loss = static_cast<double*>(take(sizeof(double), "loss"));
    tokens = reinterpret_cast<int*>(floats(kContext, "tokens"));
    targets = reinterpret_cast<int*>(floats(1, "targets"));
    sorted = reinterpret_cast<int*>(floats(kContext, "sorted tokens"));
    places = reinterpret_cast<int*>(floats(kContext, "places of tokens"));
    scratch = take(kScratchBytes, "scratch of Thrust");
    workspace = take(kScratchBytes, "workspace of cuBLAS");
  }
  int rows;
  float *x, *y, *logits, *dx, *dy;
  double *losses, *loss;
  int *tokens, *targets, *sorted, *places;
  void *scratch, *workspace;
};

/// Windows of a text in page-locked memory, so that copies of them wait for nothing. Those of a
/// step stay as they are until the run has ended. Without a text there are none, and no copies.
class Windows {
 public:
  Windows() = default;
  Windows(const std::string& text, int steps) {
    const auto bytes = sizeof(int) * static_cast<std::size_t>(steps) * kBatch * (kContext + 1);
    check(cudaMallocHost(reinterpret_cast<void**>(&data_), bytes));
    int* to = data_;
    for (int step = 0; step < steps; ++step) {
      for (int w = 0; w < kBatch; ++w) {
        to = std::transform(at(text, step, w, 0), at(text, step, w, kContext), to, byte);
      }
      for (int w = 0; w < kBatch; ++w) { *to++ = byte(*at(text, step, w, kContext)); }
    }
  }
  ~Windows() {
    if (data_ != nullptr) { (void)cudaFreeHost(data_); }
  }
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  /// Copies one rank's samples; several ranks share a step's samples out.
  void copy(const Gpu& gpu, const Work& work, int step, int rank) const {
    if (!gpu.runs()) { return; }
    const int* const tokens = data_ + static_cast<std::ptrdiff_t>(step) * kBatch * (kContext + 1);
    const auto rows = static_cast<std::size_t>(work.rows);
    check(cudaMemcpyAsync(work.tokens, tokens + rank * work.rows * kContext,
                          sizeof(int) * rows * kContext, cudaMemcpyHostToDevice, gpu.stream()));
    check(cudaMemcpyAsync(work.targets, tokens + kBatch * kContext + rank * work.rows,
                          sizeof(int) * rows, cudaMemcpyHostToDevice, gpu.stream()));
  }

 private:
  static int byte(char c) { return static_cast<unsigned char>(c); }
  static std::string::const_iterator at(const std::string& text, int step, int window, int byte) {
    const auto first =
        (static_cast<std::size_t>(step) * kBatch + static_cast<std::size_t>(window)) * 37;
    return text.begin() + static_cast<std::ptrdiff_t>(first % (text.size() - kContext - 1)) + byte;
  }
  int* data_ = nullptr;
};

/// Every parameter starts as what depends on its name and the element alone.
void initial(const std::string& name, std::int64_t first, float* out, std::size_t count) {
  const auto seed = static_cast<double>(std::hash<std::string>{}(name) % 1000);
  for (std::size_t i = 0; i < count; ++i) {
    const double turn =
        0.754877666 * static_cast<double>(first + static_cast<std::int64_t>(i)) + seed;
    out[i] = static_cast<float>(0.1 * std::sin(12.9898 * turn) * std::cos(turn));
  }
}

// --------------------------------------------------------------------------------------- plain

struct Parameter {
  float *value, *gradient, *m, *v;
  int elems;
};

/// The parameters of one layer by name, and their gradients.
class Layer {
 public:
  Layer(const Take& take, const std::string& name, const std::map<std::string, int>& parameters) {
    for (const auto& [parameter, elems] : parameters) {
      add(take, name + "." + parameter, all_[parameter], elems);
    }
  }
  [[nodiscard]] const float* operator[](const std::string& name) const {
    return all_.at(name).value;
  }
  [[nodiscard]] float* grad(const std::string& name) const { return all_.at(name).gradient; }
  [[nodiscard]] const std::map<std::string, Parameter>& all() const { return all_; }

 private:
  static void add(const Take& take, const std::string& name, Parameter& p, int elems) {
    const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(elems);
    p.elems = elems;
    for (float** part : {&p.value, &p.gradient, &p.m, &p.v}) {
      *part = static_cast<float*>(take(bytes, name.c_str()));
    }
    std::vector<float> values(static_cast<std::size_t>(elems));
    initial(name, 0, values.data(), values.size());
    check(cudaMemcpy(p.value, values.data(), bytes, cudaMemcpyHostToDevice));
  }
  std::map<std::string, Parameter> all_;
};

struct Adam {
  Parameter p;
  float correction1, correction2;
  __device__ void operator()(int i) const {
    const float g = p.gradient[i];
    p.m[i] = 0.9F * p.m[i] + 0.1F * g;
    p.v[i] = 0.999F * p.v[i] + 0.001F * g * g;
    p.value[i] -= kRate * (p.m[i] / correction1) / (sqrtf(p.v[i] / correction2) + 1e-8F);
  }
};

// [plain]
std::vector<double> train_plain(const Windows& windows, int steps) {
  std::vector<void*> taken;
  const auto take = [&](std::size_t bytes, const char* /*name*/) {
    taken.push_back(nullptr);
    check(cudaMalloc(&taken.back(), bytes));
    check(cudaMemset(taken.back(), 0, bytes));
    return taken.back();
  };
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Work a{take, kBatch};
  Gpu gpu{Kernels::run, stream, a.scratch, a.workspace};

  const Layer embedding{take, "embedding", {{"table", kBytes * kEmbedding}}};
  const Layer hidden{take, "hidden", {{"weight", kInputs * kHidden}, {"bias", kHidden}}};
  const Layer head{take, "head", {{"weight", kHidden * kBytes}, {"bias", kBytes}}};
  check(cudaDeviceSynchronize());

  std::vector<double> losses(static_cast<std::size_t>(steps));
  for (int step = 0; step < steps; ++step) {
    windows.copy(gpu, a, step, 0);
    embed(gpu, a.tokens, embedding["table"], a.x, a.rows);
    linear(gpu, a.x, hidden["weight"], hidden["bias"], a.y, a.rows, kInputs, kHidden);
    tanh_forward(gpu, a.y, a.rows);
    linear(gpu, a.y, head["weight"], head["bias"], a.logits, a.rows, kHidden, kBytes);
    loss_and_gradient(gpu, a.logits, a.targets, a.losses, a.loss, a.rows);

    for (const Layer* layer : {&embedding, &hidden, &head}) {
      for (const auto& [name, p] : layer->all()) {
        const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(p.elems);
        check(cudaMemsetAsync(p.gradient, 0, bytes, stream));
      }
    }
    linear_backward(gpu, a.y, head["weight"], a.logits, head.grad("weight"), head.grad("bias"),
                    a.dy, a.rows, kHidden, kBytes);
    tanh_backward(gpu, a.y, a.dy, a.rows);
    linear_backward(gpu, a.x, hidden["weight"], a.dy, hidden.grad("weight"), hidden.grad("bias"),
                    a.dx, a.rows, kInputs, kHidden);
    embed_backward(gpu, a.tokens, a.sorted, a.places, a.dx, embedding.grad("table"), a.rows);

    const auto t = static_cast<float>(step + 1);
    for (const Layer* layer : {&embedding, &hidden, &head}) {
      for (const auto& [name, p] : layer->all()) {
        thrust::for_each_n(gpu.thrust(), thrust::counting_iterator<int>{0}, p.elems,
                           Adam{p, 1.0F - std::pow(0.9F, t), 1.0F - std::pow(0.999F, t)});
      }
    }
    check(cudaMemcpyAsync(&losses[static_cast<std::size_t>(step)], a.loss, sizeof(double),
                          cudaMemcpyDeviceToHost, stream));
  }
  check(cudaStreamSynchronize(stream));
  check(cudaStreamDestroy(stream));
  for (void* const memory : taken) { check(cudaFree(memory)); }
  return losses;
}
// [/plain]

// ------------------------------------------------------------------------------------- wrapped

// [wrapped]
std::vector<double> train_wrapped(tessera::World& world, tessera::Strategy strategy,
                                  const Windows& windows, int steps, Kernels kernels) {
  std::vector<tessera::Buffer> taken;
  const auto take = [&](std::size_t bytes, const char* name) {
    taken.push_back(world.allocate(tessera::Category::activations, bytes, name));
    return taken.back().data();
  };
  const auto stream = static_cast<cudaStream_t>(world.compute_stream().native());
  Work a{take, kBatch / world.size()};
  Gpu gpu{kernels, stream, a.scratch, a.workspace};

  tessera::ShardedModel model{world, {.strategy = strategy}};
  const auto units =
      std::array{model.add_unit("embedding", {{"table", {kBytes, kEmbedding}}}),
                 model.add_unit("hidden", {{"weight", {kInputs, kHidden}}, {"bias", {kHidden}}}),
                 model.add_unit("head", {{"weight", {kHidden, kBytes}}, {"bias", {kBytes}}})};
  model.materialize([](const tessera::ParameterInfo& p, std::int64_t first, std::span<float> out) {
    initial(p.full_name(), first, out.data(), out.size());
  });
  model.optimize_with(tessera::Adam{.lr = kRate});

  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    windows.copy(gpu, a, step, world.rank());
    {
      const auto embedding = model.forward(units[0]);  // gathered here, released at the brace
      embed(gpu, a.tokens, embedding["table"], a.x, a.rows);
    }
    {
      const auto hidden = model.forward(units[1]);
      linear(gpu, a.x, hidden["weight"], hidden["bias"], a.y, a.rows, kInputs, kHidden);
      tanh_forward(gpu, a.y, a.rows);
    }
    {
      const auto head = model.forward(units[2]);
      linear(gpu, a.y, head["weight"], head["bias"], a.logits, a.rows, kHidden, kBytes);
      loss_and_gradient(gpu, a.logits, a.targets, a.losses, a.loss, a.rows);
    }

    {
      const auto head = model.backward(units[2]);  // gathered here, reduced at the brace
      linear_backward(gpu, a.y, head["weight"], a.logits, head.grad("weight"), head.grad("bias"),
                      a.dy, a.rows, kHidden, kBytes);
      tanh_backward(gpu, a.y, a.dy, a.rows);
    }
    {
      const auto hidden = model.backward(units[1]);
      linear_backward(gpu, a.x, hidden["weight"], a.dy, hidden.grad("weight"), hidden.grad("bias"),
                      a.dx, a.rows, kInputs, kHidden);
    }
    {
      const auto embedding = model.backward(units[0]);
      embed_backward(gpu, a.tokens, a.sorted, a.places, a.dx, embedding.grad("table"), a.rows);
    }

    model.step(gpu.runs() ? a.loss : nullptr);
    // The previous step's loss: to ask for this step's, the host would wait and the GPU run dry.
    if (step > 0) { losses.push_back(model.previous_report().loss); }
  }
  losses.push_back(model.report().loss);
  world.compute_stream().wait();  // before the memory of `a` goes
  return losses;
}
// [/wrapped]

// ---------------------------------------------------------------------------------------- main

struct Arguments {
  bool plan_only = false;
  Kernels kernels = Kernels::run;
  tessera::Strategy strategy = tessera::Strategy::zero3;
  int ranks = 2;
  int steps = 60;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  std::vector<std::string> words{argv + 1, argv + argc};
  if (!words.empty() && words[0].starts_with("--")) {
    arguments.plan_only = words[0] == "--plan";
    if (words[0] == "--without-kernels") { arguments.kernels = Kernels::left_out; }
    if (!arguments.plan_only && arguments.kernels == Kernels::run) {
      throw tessera::ConfigError("'" + words[0] + "' is unknown; use --plan or --without-kernels");
    }
    words.erase(words.begin());
  }
  if (!words.empty()) { arguments.strategy = tessera::parse_strategy(words[0]); }
  if (words.size() > 1) { arguments.ranks = std::atoi(words[1].c_str()); }
  if (words.size() > 2) { arguments.steps = std::atoi(words[2].c_str()); }
  if (arguments.ranks < 1 || kBatch % arguments.ranks != 0) {
    throw tessera::ConfigError("ranks: " + std::to_string(kBatch) +
                               " windows are shared out: give "
                               "a divisor of that");
  }
  if (arguments.steps < 2) { throw tessera::ConfigError("steps: give 2 or more"); }
  return arguments;
}

std::string own_source() {
  std::ifstream file{__FILE__, std::ios::binary};
  std::string text{std::istreambuf_iterator<char>{file}, {}};
  if (text.size() < 1000) { throw std::runtime_error{"its own source is gone: " __FILE__}; }
  return text;
}

/// The same program on a device that only counts.
std::vector<tessera::PlannedRank> planned(const Arguments& arguments) {
  tessera::PlanOptions options;
  options.ranks = arguments.ranks;
  options.backend.device = tessera::DeviceKind::cuda;
  auto plan = tessera::plan(options, [&](tessera::World& world) {
    (void)train_wrapped(world, arguments.strategy, {}, /*steps=*/2, Kernels::left_out);
  });
  for (const tessera::PlannedRank& rank : plan) {
    std::printf("planned: rank %d and %d like it hold %zu bytes at most\n", rank.rank,
                rank.count - 1, rank.memory.peak_bytes);
  }
  return plan;
}

/// A plan names the first of the ranks that hold the same, and how many they are.
std::size_t planned_peak(const std::vector<tessera::PlannedRank>& plan, int rank) {
  for (const tessera::PlannedRank& alike : plan) {
    if (rank < alike.rank + alike.count) { return alike.memory.peak_bytes; }
  }
  throw std::logic_error{"rank " + std::to_string(rank) + " is in no plan"};
}

/// Whether every rank held what was planned for it.
bool run(const Arguments& arguments, const std::vector<tessera::PlannedRank>& plan,
         const Windows& windows, std::vector<double>& losses) {
  std::mutex printing;
  bool as_planned = true;
  tessera::WorldOptions options;
  options.device = tessera::DeviceKind::cuda;
  tessera::run_ranks(
      arguments.ranks,
      [&](tessera::World& world) {
        auto mine =
            train_wrapped(world, arguments.strategy, windows, arguments.steps, arguments.kernels);
        const std::size_t peak = world.memory().report().peak_bytes;
        const std::lock_guard lock{printing};
        as_planned = as_planned && peak == planned_peak(plan, world.rank());
        std::printf("rank %d held %zu bytes at most\n", world.rank(), peak);
        if (world.rank() == 0) { losses = std::move(mine); }
      },
      options);
  std::printf("%s\n", as_planned ? "as planned, to the byte" : "NOT as planned");
  return as_planned;
}

/// Whether the losses are equal but for rounding, and fell.
bool compare(const std::vector<double>& plain, const std::vector<double>& wrapped) {
  double most = 0.0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double apart = std::abs(wrapped[i] - plain[i]) / plain[i];
    if (!(apart <= most)) { most = apart; }  // also if it is no number
  }
  std::printf("loss, plain:   %.6f at first, %.6f at last\n", plain.front(), plain.back());
  std::printf("loss, wrapped: %.6f at first, %.6f at last\n", wrapped.front(), wrapped.back());
  std::printf("largest difference: %.1e of the loss\n", most);
  return most < 1e-3 && wrapped.back() < 0.8 * wrapped.front();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Arguments arguments = parse(argc, argv);
    const auto plan = planned(arguments);
    if (arguments.plan_only) { return 0; }
    std::vector<double> wrapped;
    if (arguments.kernels == Kernels::left_out) {
      return run(arguments, plan, {}, wrapped) ? 0 : 1;
    }
    const Windows windows{own_source(), arguments.steps};
    const bool as_planned = run(arguments, plan, windows, wrapped);
    return compare(train_plain(windows, arguments.steps), wrapped) && as_planned ? 0 : 1;
  } catch (const tessera::ConfigError& error) {
    std::fprintf(stderr, "cuda_trainer: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_trainer: %s\n", error.what());
    return 1;
  }
}
