// Makes a machine's profile from the figures of scripts/gpu_check.sh (docs/gpu-check.md describes
// gpu.json).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#include "tessera/profile/machine_profile.hpp"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;
using trace::KernelWork;

constexpr double kGiga = 1e9;
constexpr double kTera = 1e12;
constexpr double kMicro = 1e-6;
constexpr std::int64_t kHeadSize = 64;  // the head size of the benchmark's attention, as in GPT-2
constexpr double kNarrow = 2;           // bytes of bf16
constexpr double kWide = 4;             // bytes of fp32

[[noreturn]] void refuse(const std::string& what) {
  constexpr std::size_t kMostShown = 1000;
  throw ConfigError{"the figures " + shown(what, kMostShown)};
}

struct Figure {
  std::string part;
  std::string name;
  std::string shape;
  double value = 0;
  std::string unit;
};

/// The figures of a document, and those that were needed but missing.
class Figures {
 public:
  explicit Figures(std::string_view json) {
    try {
      read(Json::parse(json));
    } catch (const Json::exception& error) {
      refuse(fmt::format("do not come from scripts/gpu_check.sh: {}", error.what()));
    }
  }

  [[nodiscard]] const std::vector<Figure>& all() const noexcept { return all_; }
  [[nodiscard]] const std::string& device() const noexcept { return device_; }
  [[nodiscard]] const std::string& commit() const noexcept { return commit_; }

  [[nodiscard]] std::optional<Figure> find(std::string_view part, std::string_view name,
                                           std::string_view unit) const {
    for (const Figure& figure : all_) {
      if (figure.part == part && figure.name == name && figure.unit == unit) { return figure; }
    }
    return {};
  }
  /// Notes a missing figure.
  std::optional<Figure> need(std::string_view part, std::string_view name, std::string_view unit) {
    std::optional<Figure> found = find(part, name, unit);
    if (!found) { miss(part, fmt::format("{} ({})", name, unit)); }
    return found;
  }
  void miss(std::string_view part, std::string what) {
    missing_[std::string{part}].push_back(std::move(what));
  }
  /// Throws ConfigError if a figure was missing.
  void require_none_missing() const {
    std::string text;
    for (const auto& [part, names] : missing_) {
      text += fmt::format("{}have no {}, which `scripts/gpu_check.sh {}` measures",
                          text.empty() ? "" : "; ", fmt::join(names, ", "), part);
    }
    if (!text.empty()) { refuse(text); }
  }

 private:
  void read(const Json& json) {
    if (!json.is_object() || json.value("format", "") != "tessera gpu_check") {
      refuse(
          "do not come from scripts/gpu_check.sh: they have no \"format\": \"tessera gpu_check\"");
    }
    if (json.at("version") != 1) {
      refuse(fmt::format("are of version {}, but this build reads version 1",
                         json.at("version").dump()));
    }
    for (const Json& part : json.at("parts")) {
      const auto name = part.at("name").get<std::string>();
      if (name == "kernels") {
        device_ = part.at("machine").value("device", "");
        commit_ = part.at("commit").get<std::string>();
      }
      for (const Json& one : part.at("figures")) { add(name, one); }
    }
  }

  void add(const std::string& part, const Json& one) {
    Figure figure{part, one.at("name").get<std::string>(), one.at("shape").get<std::string>(),
                  one.at("value").get<double>(), one.at("unit").get<std::string>()};
    // A count may be 0; a rate may not.
    const bool rate = figure.unit.ends_with("/s") || figure.unit == "us";
    if (rate && !(figure.value > 0 && std::isfinite(figure.value))) {
      refuse(
          fmt::format("have {} {} as '{}' of shape '{}' in part {}; it must be above 0: measure "
                      "that part again (`scripts/gpu_check.sh {}`), or remove the row",
                      figure.value, figure.unit, figure.name, figure.shape, part, part));
    }
    all_.push_back(std::move(figure));
  }

  std::vector<Figure> all_;
  std::string device_;
  std::string commit_;
  std::map<std::string, std::vector<std::string>> missing_;
};

/// The numbers of a shape, in order: 65536, 2304 and 768 of "65536 x 2304 x 768".
template <std::size_t N>
std::optional<std::array<std::int64_t, N>> numbers_in(const std::string& shape) {
  std::array<std::int64_t, N> found{};
  std::size_t at = 0;
  for (std::int64_t& number : found) {
    at = shape.find_first_of("0123456789", at);
    if (at == std::string::npos) { return {}; }
    const std::size_t end = std::min(shape.find_first_not_of("0123456789", at), shape.size());
    constexpr std::size_t kMostDigits = 15;
    if (end - at > kMostDigits) { return {}; }
    number = std::stoll(shape.substr(at, end - at));
    if (number == 0) { return {}; }
    at = end;
  }
  return found;
}

template <std::size_t N>
std::array<std::int64_t, N> sizes_of(const Figure& figure) {
  const auto found = numbers_in<N>(figure.shape);
  if (!found) {
    refuse(
        fmt::format("do not have {} sizes in the shape of {}: '{}'", N, figure.name, figure.shape));
  }
  return *found;
}

double times(std::int64_t a, std::int64_t b, double c = 1) {
  return static_cast<double>(a) * static_cast<double>(b) * c;
}

/// A kernel with the time that the figure's rate gives.
KernelSample sample(KernelWork work, const Figure& figure) {
  const double amount = figure.unit == "TFLOP/s" ? work.flops / kTera : work.bytes / kGiga;
  return {.work = std::move(work), .seconds = amount / figure.value};
}

// --- Products
// ---------------------------------------------------------------------------------------

/// The product as a layer computes it in this pass; the tied table is transposed.
std::string product_name(const std::string& weight, const std::string& pass) {
  if (pass == "dW") { return "matmul_tn"; }
  return (pass == "forward") == (weight == "wte") ? "matmul_nt" : "matmul_nn";
}

KernelSample product(const Figure& figure, const std::string& weight, const std::string& pass) {
  const auto [m, n, k] = sizes_of<3>(figure);
  const double result = times(m, n, pass == "dW" ? 2 * kWide : kNarrow);
  return sample({.name = product_name(weight, pass),
                 .dtype = DType::bf16,
                 .flops = 2 * times(m, n, static_cast<double>(k)),
                 .bytes = times(m, k, kNarrow) + times(k, n, kNarrow) + result,
                 .sizes = {m, n, k}},
                figure);
}

void add_products(Figures& figures, MachineProfile& profile) {
  double& fastest = profile.flops_per_second[DType::bf16];
  for (const char* const weight : {"c_attn", "c_proj", "c_fc", "mlp.c_proj", "wte"}) {
    for (const char* const pass : {"forward", "dx", "dW"}) {
      const auto found = figures.need("kernels", fmt::format("{} {}", weight, pass), "TFLOP/s");
      if (!found) { continue; }
      profile.kernels.push_back(product(*found, weight, pass));
      fastest = std::max(fastest, found->value * kTera);
    }
  }
}

// --- Attention and what memory bounds
// ---------------------------------------------------------------

void add_attention(Figures& figures, MachineProfile& profile) {
  for (const bool backward : {false, true}) {
    const auto found = figures.need(
        "kernels", backward ? "attention backward, bf16" : "attention forward, bf16", "TFLOP/s");
    if (!found) { continue; }
    const auto [tokens, seq, hidden] = sizes_of<3>(*found);
    const double elems = times(tokens, hidden);
    profile.kernels.push_back(
        sample({.name = backward ? "attention_backward" : "attention_forward",
                .dtype = DType::bf16,
                .flops = (backward ? 5 : 2) * elems * static_cast<double>(seq + 1),
                .bytes = (backward ? 8 : 4) * elems * kNarrow,
                .sizes = {tokens / seq * hidden / kHeadSize, seq, kHeadSize}},
               *found));
  }
}

/// A kernel over rows of a layer's width, or over its elements as one row. FLOPs and bytes per
/// element are those that the benchmark and plans count.
struct MemoryBound {
  const char* figure;
  const char* kernel;
  DType dtype;
  double flops;
  double bytes;
  std::int64_t widths;
  bool rows;
};

constexpr std::array<MemoryBound, 8> kMemoryBound{{
    {"cast fp32 to bf16", "cast", DType::bf16, 0, kWide + kNarrow, 4, false},
    {"cast bf16 to fp32", "cast", DType::fp32, 0, kWide + kNarrow, 4, false},
    {"squared norm, bf16", "squared_norm", DType::bf16, 2, kNarrow, 4, false},
    {"squared norm, fp32", "squared_norm", DType::fp32, 2, kWide, 4, false},
    {"GELU forward, bf16", "gelu_forward", DType::bf16, 8, 2 * kNarrow, 4, false},
    {"GELU backward, bf16", "gelu_backward", DType::bf16, 14, 3 * kNarrow, 4, false},
    {"layer norm forward, bf16", "layer_norm_forward", DType::bf16, 8, 2 * kNarrow, 1, true},
    {"layer norm backward, bf16", "layer_norm_backward", DType::bf16, 14, 4 * kNarrow, 1, true},
}};

void add_memory_bound(Figures& figures, MachineProfile& profile) {
  for (const MemoryBound& one : kMemoryBound) {
    const auto found = figures.need("kernels", one.figure, "GB/s");
    if (!found) { continue; }
    const auto [tokens, seq, hidden] = sizes_of<3>(*found);
    const std::int64_t columns = one.widths * hidden;
    KernelWork work{.name = one.kernel,
                    .dtype = one.dtype,
                    .flops = times(tokens, columns, one.flops),
                    .bytes = times(tokens, columns, one.bytes)};
    work.sizes = one.rows ? decltype(work.sizes){tokens, columns, 0}
                          : decltype(work.sizes){tokens * columns, 0, 0};
    profile.kernels.push_back(sample(std::move(work), *found));
  }
  if (const auto loss = figures.need("kernels", "cross entropy, bf16", "GB/s")) {
    const auto [tokens, seq, hidden, classes] = sizes_of<4>(*loss);
    profile.kernels.push_back(sample({.name = "cross_entropy",
                                      .dtype = DType::bf16,
                                      .flops = times(tokens, classes, 6),
                                      .bytes = times(tokens, classes, 2 * kNarrow),
                                      .sizes = {tokens, classes, 0}},
                                     *loss));
  }
}

/// Adds the update, and with it the rate of a device copy.
void add_update(Figures& figures, MachineProfile& profile) {
  const auto update = figures.need("kernels", "AdamW, fp32 gradients", "GB/s");
  const auto of_copy = figures.need("kernels", "AdamW, fp32 gradients / device copy", "ratio");
  if (!update || !of_copy) { return; }
  if (!(of_copy->value > 0)) {
    refuse(
        "have no ratio above 0 of AdamW to a device copy; measure it again (`scripts/gpu_check.sh "
        "kernels`)");
  }
  constexpr double kUpdateBytes = 28;
  constexpr double kUpdateFlops = 16;
  const auto [elems] = sizes_of<1>(*update);
  profile.bytes_per_second = update->value * kGiga / of_copy->value;
  profile.kernels.push_back(sample({.name = "adamw",
                                    .dtype = DType::fp32,
                                    .flops = times(elems, 1, kUpdateFlops),
                                    .bytes = times(elems, 1, kUpdateBytes),
                                    .sizes = {elems, 0, 0}},
                                   *update));
}

/// No purely computing kernel was measured: the rates of memory-bound kernels are a lower bound.
void set_vector_rate(MachineProfile& profile) {
  for (const KernelSample& one : profile.kernels) {
    if (one.work.name.starts_with("matmul") || one.work.name.starts_with("attention")) { continue; }
    profile.vector_flops_per_second =
        std::max(profile.vector_flops_per_second, one.work.flops / one.seconds);
  }
}

// --- Launches, copies and links
// -----------------------------------------------------------------------------

void add_launches(const Figures& figures, MeasuredDevice& device) {
  const auto on_host = figures.find("kernels", "launch of a kernel, host", "us");
  const auto on_device = figures.find("kernels", "launch of a kernel, device", "us");
  if (!on_host || !on_device) {
    device.not_measured.emplace_back(
        "the cost of a launch: plans count none; `scripts/gpu_check.sh kernels` measures it");
    return;
  }
  device.profile.enqueue_seconds = on_host->value * kMicro;
  device.profile.kernel_seconds = on_device->value * kMicro;
}

/// An offloaded state moves in both directions at once.
void add_host_copies(const Figures& figures, MeasuredDevice& device) {
  const auto rate = figures.find("kernels", "copies from and to the host at once, each", "GB/s");
  if (!rate) {
    device.not_measured.emplace_back(
        "copies between device and host: they are planned as the device's own; "
        "`scripts/gpu_check.sh kernels` measures them");
    return;
  }
  device.profile.host_bytes_per_second = rate->value * kGiga;
}

struct Collective {
  std::int64_t ranks;
  std::int64_t bytes;
  double value;
};

/// The figures of one collective, over the most ranks; the smallest tensor first.
std::vector<Collective> collectives(const Figures& figures, const std::string& name,
                                    std::string_view unit) {
  std::vector<Collective> all;
  for (const Figure& figure : figures.all()) {
    if (figure.part != "multi" || figure.name != name || figure.unit != unit) { continue; }
    const auto [ranks, bytes] = sizes_of<2>(figure);
    all.push_back({ranks, bytes, figure.value});
  }
  std::ranges::sort(all, [](const Collective& a, const Collective& b) {
    return std::pair{-a.ranks, a.bytes} < std::pair{-b.ranks, b.bytes};
  });
  std::erase_if(all, [&](const Collective& one) { return one.ranks != all.front().ranks; });
  return all;
}

/// One level and one protocol: the bus bandwidth of the largest tensors, and the time of the
/// smallest.
void add_links(const Figures& figures, MeasuredDevice& device) {
  std::vector<double> rates;
  std::map<std::string, double> least;
  std::int64_t ranks = 0;
  for (const char* const name : {"all_gather", "reduce_scatter", "all_reduce"}) {
    const auto bandwidths = collectives(figures, fmt::format("{}, bus bandwidth", name), "GB/s");
    const auto latencies = collectives(figures, fmt::format("{}, a call", name), "us");
    if (bandwidths.empty() || latencies.empty()) {
      device.not_measured.emplace_back(
          "links between ranks: plans of several ranks are rejected; `scripts/gpu_check.sh multi` "
          "measures them on a machine with 2 or more GPUs");
      return;
    }
    ranks = bandwidths.front().ranks;
    rates.push_back(bandwidths.back().value * kGiga);
    least[name] = latencies.front().value * kMicro;
  }
  std::ranges::sort(rates);
  // A ring passes n - 1 links, and twice as many if all ranks get the sum.
  const double links = static_cast<double>(std::max<std::int64_t>(ranks - 1, 1));
  const double once = (least["all_gather"] + least["reduce_scatter"]) / 2;
  const double step = std::clamp(least["all_reduce"] - once, 0.0, once) / links;
  device.profile.protocols = {{"nccl", 1.0, once - links * step}};
  device.profile.levels = {
      {"node", static_cast<int>(std::max<std::int64_t>(ranks, 2)), rates[1], {step}}};
}

}  // namespace

MeasuredDevice profile_of_gpu_check(std::string_view json) {
  Figures figures{json};
  MeasuredDevice device;
  MachineProfile& profile = device.profile;
  add_products(figures, profile);
  add_attention(figures, profile);
  add_memory_bound(figures, profile);
  add_update(figures, profile);
  figures.require_none_missing();
  set_vector_rate(profile);
  add_launches(figures, device);
  add_host_copies(figures, device);
  add_links(figures, device);
  device.not_measured.emplace_back("products in fp32 and fp16: plans with them are rejected");
  profile.name = figures.device();
  profile.source = fmt::format("scripts/gpu_check.sh, commit {}", figures.commit());
  profile.validate();
  return device;
}

}  // namespace tessera
