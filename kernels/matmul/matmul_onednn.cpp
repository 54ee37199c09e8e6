// Compiled where oneDNN was found: see CMakeLists.txt.
#include "kernels/matmul/matmul_onednn.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/cpu/instructions.hpp"
#include "kernels/support/scratch.hpp"
#include "tessera/base/error.hpp"
#include "tessera/device/product_library.hpp"

#if DNNL_CPU_RUNTIME == DNNL_RUNTIME_OMP
// Declared here: <omp.h> is not installed with every compiler. libgomp is linked under this name.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int threads);
}
#endif

namespace tessera::kernels {
namespace {

constexpr std::size_t kKeptMatMuls = 64;

/// oneDNN uses as many threads as OpenMP would give a loop of this thread. Our threads come from
/// the stream, so the number is one during a call; afterwards the caller's setting is restored.
class OneThread {
 public:
#if DNNL_CPU_RUNTIME == DNNL_RUNTIME_OMP
  OneThread() noexcept : before_{omp_get_max_threads()} { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }

 private:
  int before_;
#else
  OneThread() noexcept = default;
  ~OneThread() {}
#endif

 public:
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
};

bool has(dnnl::cpu_isa isa) {
  const auto wanted = static_cast<unsigned>(isa);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}

/// Keeps oneDNN to the instructions that TESSERA_CPU allows. oneDNN takes such a limit before its
/// first product in the process only.
void limit_instructions() {
  dnnl::cpu_isa most = dnnl::cpu_isa::avx2;
  switch (device::instructions().most) {
    case device::InstructionSet::native:
      return;
    case device::InstructionSet::avx512_bf16:
      most = dnnl::cpu_isa::avx512_core_bf16;
      break;
    case device::InstructionSet::avx512:
      most = dnnl::cpu_isa::avx512_core;
      break;
    case device::InstructionSet::avx2:
      break;
  }
  const dnnl::status status = dnnl::set_max_cpu_isa(most);
  const auto used = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  if ((used & ~static_cast<unsigned>(most)) != 0) {
    throw ConfigError{
        status == dnnl::status::unimplemented
            ? "TESSERA_CPU limits the instructions of matrix products, but this oneDNN cannot be "
              "limited; build with -DTESSERA_ONEDNN=OFF"
            : "TESSERA_CPU limits the instructions of matrix products, but oneDNN had chosen "
              "others before, in a library of this process; set ONEDNN_MAX_CPU_ISA too"};
  }
}

/// Another library of this process, such as libtorch, may compute with oneDNN before Tessera does:
/// the limit is set when the program starts. An error waits for the first product, which can report
/// it.
[[maybe_unused]] const bool kLimitedAtStart = []() noexcept {
  try {
    limit_instructions();
    return true;
  } catch (...) { return false; }
}();

struct Computes {
  bool fp32;
  bool bf16;
  bool fp32_faster;
  bool bf16_faster;
};

/// With AVX2 oneDNN computes fp32 in orders that depend on m, and is not taken. Measured on
/// Sapphire Rapids: bf16 with AMX is 5 to 8 times as fast as fp32, bf16 with AVX512-BF16 alone 0.65
/// times (Intel's cores start such an instruction every second cycle, AMD's every cycle), fp32 1.0
/// to 1.2 times as fast as Eigen.
const Computes& computes() {
  static const Computes found = [] {
    limit_instructions();
    const bool intel = device::instructions().choices == device::Choices::intel;
    const bool avx512 = has(dnnl::cpu_isa::avx512_core);
    const bool bf16 = has(dnnl::cpu_isa::avx512_core_bf16);
    const bool amx = has(dnnl::cpu_isa::avx512_core_amx);
    return Computes{avx512, bf16, avx512 && intel, amx || (bf16 && !intel)};
  }();
  return found;
}

dnnl::memory::data_type type_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return dnnl::memory::data_type::bf16;
    case DType::fp16:
      return dnnl::memory::data_type::f16;
    default:
      return dnnl::memory::data_type::f32;
  }
}

/// A row-major matrix with rows `stride` apart, read as its transpose if requested.
dnnl::memory::desc matrix(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                          Transpose transpose) {
  const dnnl::memory::dims strides =
      transpose == Transpose::yes ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return {{rows, columns}, type_of(dtype), strides};
}

dnnl::matmul::primitive_desc describe(const MatMul& p, const dnnl::engine& engine) {
  const bool tb = p.transpose_b == Transpose::yes;
  const auto a = matrix(p.a.dtype, p.m, p.k, p.a_row_elems(), p.transpose_a);
  const auto b = matrix(p.b.dtype, p.k, p.n, tb ? p.k : p.n, p.transpose_b);
  const auto c = matrix(p.c.dtype, p.m, p.n, p.c_row_elems(), Transpose::no);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR > 2 || (DNNL_VERSION_MAJOR == 2 && DNNL_VERSION_MINOR >= 6)
  // Otherwise ONEDNN_DEFAULT_FPMATH_MODE could make oneDNN compute fp32 in bf16.
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);
#endif
  if (p.write == Write::add) {
    dnnl::post_ops add;
    add.append_sum(1.0F);
    attributes.set_post_ops(add);
  }
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, b, c, attributes};
#else
  return {dnnl::matmul::desc{a, b, c}, attributes, engine};
#endif
}

/// A compiled product and its arguments: only the addresses change between calls.
class Compiled {
 public:
  Compiled(const MatMul& like, const dnnl::engine& engine)
      : Compiled{like, engine, describe(like, engine)} {}

  [[nodiscard]] bool computes(const MatMul& q) const {
    const MatMul& p = like_;
    return p.m == q.m && p.n == q.n && p.k == q.k && p.a_row_elems() == q.a_row_elems() &&
           p.c_row_elems() == q.c_row_elems() && p.transpose_a == q.transpose_a &&
           p.transpose_b == q.transpose_b && p.write == q.write && p.a.dtype == q.a.dtype &&
           p.b.dtype == q.b.dtype && p.c.dtype == q.c.dtype;
  }

  [[nodiscard]] std::size_t scratch_bytes() const { return scratch_bytes_; }

  void run(const MatMul& p, void* scratch, const dnnl::stream& stream) {
    // oneDNN only reads A and B; its arguments have one type for both.
    arguments_.at(DNNL_ARG_SRC).set_data_handle(const_cast<void*>(p.a.data));
    arguments_.at(DNNL_ARG_WEIGHTS).set_data_handle(const_cast<void*>(p.b.data));
    arguments_.at(DNNL_ARG_DST).set_data_handle(p.c.data);
    arguments_.at(DNNL_ARG_SCRATCHPAD).set_data_handle(scratch);
    primitive_.execute(stream, arguments_);
  }

  std::uint64_t last_use = 0;

 private:
  Compiled(const MatMul& like, const dnnl::engine& engine,
           const dnnl::matmul::primitive_desc& description)
      : like_{like},
        primitive_{description},
        arguments_{{DNNL_ARG_SRC, {description.src_desc(), engine, nullptr}},
                   {DNNL_ARG_WEIGHTS, {description.weights_desc(), engine, nullptr}},
                   {DNNL_ARG_DST, {description.dst_desc(), engine, nullptr}},
                   {DNNL_ARG_SCRATCHPAD, {description.scratchpad_desc(), engine, nullptr}}},
        scratch_bytes_{description.scratchpad_desc().get_size()} {}

  MatMul like_;
  dnnl::matmul primitive_;
  std::unordered_map<int, dnnl::memory> arguments_;
  std::size_t scratch_bytes_;
};

/// What a thread keeps between its products.
class CompiledMatMuls {
 public:
  void run(const MatMul& product) {
    Compiled& compiled = find(product);
    compiled.run(product, scratch_.reserve(compiled.scratch_bytes()), stream_);
  }
  [[nodiscard]] std::size_t scratch_bytes(const MatMul& product) {
    return find(product).scratch_bytes();
  }

 private:
  Compiled& find(const MatMul& product) {
    const auto has = [&](const Compiled& compiled) { return compiled.computes(product); };
    auto found = std::find_if(compiled_.begin(), compiled_.end(), has);
    if (found == compiled_.end()) { found = compile(product); }
    found->last_use = ++uses_;
    return *found;
  }

  std::vector<Compiled>::iterator compile(const MatMul& product) {
    Compiled added{product, engine_};
    if (compiled_.size() < kKeptMatMuls) {
      return compiled_.insert(compiled_.end(), std::move(added));
    }
    const auto earlier = [](const Compiled& a, const Compiled& b) {
      return a.last_use < b.last_use;
    };
    const auto oldest = std::min_element(compiled_.begin(), compiled_.end(), earlier);
    *oldest = std::move(added);
    return oldest;
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::vector<Compiled> compiled_;
  Scratch scratch_;
  std::uint64_t uses_ = 0;
};

/// Calls body(products of this thread) and rethrows oneDNN's exceptions as our error.
template <class Body>
void with_compiled(const MatMul& p, Body body) {
  (void)computes();  // limits oneDNN's instructions
  const OneThread one;
  try {
    thread_local CompiledMatMuls products;
    body(products);
  } catch (const dnnl::error& error) {
    throw DeviceError{
        fmt::format("oneDNN failed in a product of {} x {} x {} ({} x {} -> {}): {} (status {})",
                    p.m, p.n, p.k, to_string(p.a.dtype), to_string(p.b.dtype), to_string(p.c.dtype),
                    error.message, static_cast<int>(error.status))};
  }
}

}  // namespace

bool onednn_computes(DType dtype) {
  return (dtype == DType::fp32 && computes().fp32) || (dtype == DType::bf16 && computes().bf16);
}

bool onednn_is_faster(DType dtype) {
  return (dtype == DType::fp32 && computes().fp32_faster) ||
         (dtype == DType::bf16 && computes().bf16_faster);
}

void onednn_matmul(const MatMul& product) {
  with_compiled(product, [&](CompiledMatMuls& products) { products.run(product); });
}

std::size_t onednn_scratch_bytes(const MatMul& product) {
  std::size_t bytes = 0;
  with_compiled(product,
                [&](CompiledMatMuls& products) { bytes = products.scratch_bytes(product); });
  return bytes;
}

}  // namespace tessera::kernels

std::string tessera::product_library() {
  using kernels::has;
  (void)kernels::computes();
  const dnnl_version_t* version = dnnl_version();
  const char* instructions = has(dnnl::cpu_isa::avx512_core_amx)    ? "AMX"
                             : has(dnnl::cpu_isa::avx512_core_bf16) ? "AVX512-BF16"
                             : has(dnnl::cpu_isa::avx512_core)      ? "AVX-512"
                             : has(dnnl::cpu_isa::avx2)             ? "AVX2"
                                                                    : "SSE4.1";
  return fmt::format("oneDNN {}.{}.{} ({})", version->major, version->minor, version->patch,
                     instructions);
}
