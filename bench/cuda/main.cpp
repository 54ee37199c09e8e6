// Prints CUDA kernels and their limits as a Markdown table.
//
//   tessera_cuda_bench [--small] [--rounds N] [--parameters N] [--json FILE] [GROUP...]
//   tessera_cuda_bench [--small] [--rounds N] [--json FILE] --choose FILE [--spare N]
//     [MODEL:BATCH...]
//   tessera_cuda_bench nccl [--small] [--rounds N] [--json FILE] [--min-ctas N] [--max-ctas N]
//     [--windows] [--high-priority]
//
// --json writes the same figures and the samples of a machine's profile to FILE
// (docs/machine-profiles.md); of a job, rank 0 does.
//
// Groups: adamw, memory, attention, decoder (what Llama, Qwen and Mistral add), products,
// collectives, host, launches; by default all of these.
// `nccl` runs on its own: the program is then one process of a launcher's job, and times
// collectives between the processes, with options of a run (WorldOptions::nccl, tuning).
//
// The second form times the algorithms that cuBLASLt offers for the products of training MODEL with
// BATCH sequences (default gpt2:64), also for products that sum columns, and writes those that are
// faster than what a run does without them to FILE, which `tessera train --products FILE` reads.
// Products leave N multiprocessors free, for `tessera train --spare-multiprocessors N`.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/cuda/cases.hpp"
#include "bench/cuda/choose.hpp"
#include "bench/cuda/collectives_on_device.hpp"
#include "bench/cuda/host_copies.hpp"
#include "bench/cuda/job_collectives.hpp"
#include "bench/cuda/launches.hpp"
#include "bench/cuda/samples.hpp"
#include "tessera/base/atomic_file.hpp"

namespace {

using namespace tessera;
using namespace tessera::bench;

struct Request {
  CudaSizes sizes;
  CollectiveOptions collectives = {.bytes = std::int64_t{256} << 20, .ranks = 4};
  int rounds = 11;
  int kernels = 1000;                               ///< tiny kernels whose launches are timed
  std::size_t host_bytes = std::size_t{64} << 20U;  ///< of a copy between device and host
  JobOptions job;
  std::vector<std::string> groups;  ///< empty: all but nccl
  std::string choices;              ///< a file to write; empty: measure the groups
  std::string json;                 ///< a file for the samples, or empty
  std::vector<TrainingProduct> products;
  int spared = 0;  ///< multiprocessors that the products leave free
};

/// "gpt2:64".
std::vector<TrainingProduct> products_of(const std::string& model) {
  const std::size_t colon = model.find(':');
  const std::string name = model.substr(0, colon);
  return training_products(nn::DecoderConfig::preset(name), std::stoll(model.substr(colon + 1)));
}

void add_products(Request& request, const std::vector<TrainingProduct>& more) {
  request.products.insert(request.products.end(), more.begin(), more.end());
}

Request parse(const std::vector<std::string>& arguments) {
  const std::vector<std::string> groups = {"adamw",   "memory",   "attention",
                                           "decoder", "products", "collectives",
                                           "host",    "launches", "nccl"};
  Request request;
  JobOptions& job = request.job;
  job.bytes = {std::int64_t{64} << 10, std::int64_t{1} << 20, std::int64_t{16} << 20,
               std::int64_t{256} << 20};
  std::string of_nccl;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const auto value = [&]() -> const std::string& {
      if (i + 1 == arguments.size()) { throw std::runtime_error{argument + " needs a value"}; }
      return arguments[++i];
    };
    const auto number = [&] { return std::stoll(value()); };
    if (argument == "--small") {
      request.sizes = {.parameters = 1000,
                       .batch = 1,
                       .seq = 8,
                       .heads = 2,
                       .head_size = 16,
                       .vocab = 96,
                       .decoder = {.batch = 1,
                                   .seq = 8,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .head_size = 16,
                                   .wide = 32,
                                   .window = 4,
                                   .document = 4}};
      request.collectives.bytes = 1024;
      request.rounds = 1;
      request.kernels = 10;
      request.host_bytes = 4096;
      job.bytes = {1024, 4096};
      job.repeats = 2;
    } else if (argument == "--rounds") {
      request.rounds = static_cast<int>(number());
    } else if (argument == "--min-ctas" || argument == "--max-ctas") {
      tessera::NcclOptions& nccl = job.world.nccl;
      (argument == "--min-ctas" ? nccl.min_ctas : nccl.max_ctas) = static_cast<int>(number());
      of_nccl = argument;
    } else if (argument == "--windows") {
      job.world.nccl.windows = true;
      of_nccl = argument;
    } else if (argument == "--high-priority") {
      job.world.tuning.channel_priority = tessera::StreamPriority::high;
      of_nccl = argument;
    } else if (argument == "--parameters") {
      request.sizes.parameters = number();
    } else if (std::find(groups.begin(), groups.end(), argument) != groups.end()) {
      request.groups.push_back(argument);
    } else if (argument == "--choose") {
      request.choices = value();
    } else if (argument == "--json") {
      request.json = value();
    } else if (argument == "--spare") {
      request.spared = static_cast<int>(number());
    } else if (!request.choices.empty() && argument.find(':') != std::string::npos) {
      add_products(request, products_of(argument));
    } else {
      throw std::runtime_error{fmt::format("'{}' is unknown: see the top of main.cpp", argument)};
    }
  }
  job.rounds = request.rounds;
  if (request.spared != 0 && request.choices.empty()) {
    throw std::runtime_error{"--spare has no effect without --choose FILE"};
  }
  const auto joins = std::count(request.groups.begin(), request.groups.end(), "nccl");
  if (joins > 0 && request.groups.size() > 1) {
    throw std::runtime_error{"nccl is a group by itself: name no other"};
  }
  if (joins == 0 && !of_nccl.empty()) {
    throw std::runtime_error{of_nccl + " has no effect: it is for the group nccl"};
  }
  return request;
}

void print_row(const std::string& title, const Comparison& result) {
  const auto rate = [&](const Timed& timed) { return amount_of(timed, result.work).text(); };
  if (result.limits.empty()) {
    fmt::print("| {} | {} | not built in | |\n", title, rate(result.ours));
  }
  for (const Timed& limit : result.limits) {
    fmt::print("| {} | {} | {}: {} | {:.3f} |\n", title, rate(result.ours), limit.name, rate(limit),
               result.ratio(limit));
  }
  std::fflush(stdout);
}

void print_row(const std::string& title, const Amount& amount) {
  fmt::print("| {} | {} | | |\n", title, amount.text());
}

bool asks_for(const Request& request, const std::string& group) {
  const auto& asked = request.groups;
  return asked.empty() || std::find(asked.begin(), asked.end(), group) != asked.end();
}

void measure_device_collectives(const Request& request, Samples& samples) {
  CollectiveOptions options = request.collectives;
  options.rounds = request.rounds;
  const std::string shape = fmt::format("{} ranks, {} bytes each", options.ranks, options.bytes);
  for (const Comparison& result :
       measure_collectives(all_collectives(), options, device_memory())) {
    print_row(fmt::format("{}, {}", result.ours.name, shape), result);
    samples.add(result.ours.name, shape, result);
  }
}

void measure_job(const JobOptions& options, Samples& samples) {
  bool first = true;
  measure_job_collectives(options, [&](const JobCollective& result) {
    if (std::exchange(first, false)) {
      fmt::print("| collective | bus bandwidth, median | a call |\n|---|---|---|\n");
    }
    fmt::print("| {}, {} ranks, {} bytes | {:.2f} GB/s | {:.1f} us |\n", result.name, result.ranks,
               result.bytes, result.bus_bandwidth() * 1e-9, result.seconds * 1e6);
    std::fflush(stdout);
    samples.add(result);
  });
}

void measure_launch(const Request& request, Samples& samples) {
  Rig rig;
  const LaunchCost cost = measure_launches(rig, request.rounds, request.kernels);
  const auto row = [&](const char* name, double seconds, const char* key) {
    const Amount amount{seconds * 1e6, "us", 2};
    print_row(name, amount);
    samples.add(name, "", amount, {{key, seconds}});
  };
  row("launch of a kernel, host", cost.host, "enqueue_seconds");
  row("launch of a kernel, device", cost.device, "kernel_seconds");
}

void measure_host(const Request& request, Samples& samples) {
  Rig rig;
  const HostCopyRates rates = measure_host_copies(rig, request.rounds, request.host_bytes);
  const auto row = [&](const char* name, double rate, Samples::Json profile = {}) {
    const Amount amount{rate * 1e-9, "GB/s", 1};
    print_row(name, amount);
    samples.add(name, "", amount, std::move(profile));
  };
  row("copies from the host", rates.in);
  row("copies to the host", rates.out);
  // An offloaded state moves in both directions at once.
  row("copies from and to the host at once, each", rates.both,
      {{"host_bytes_per_second", rates.both}});
}

void measure_kernels(const Request& request, Samples& samples) {
  Rig rig;
  for (const auto contests :
       {adamw_contests, memory_contests, attention_contests, decoder_contests, product_contests}) {
    for (const CudaContest& contest : contests(request.sizes)) {
      if (!asks_for(request, contest.group)) { continue; }
      const KernelContest made = contest.make(rig);
      const Comparison result = measure(made.contest, request.rounds);
      print_row(contest.title(), result);
      if (contest.sample) {
        samples.add(contest.name, contest.shape, result, made.work);
      } else {
        samples.add(contest.name, contest.shape, result);
      }
    }
  }
}

void measure_all(const Request& request, Samples& samples) {
  fmt::print("{} parameters, {}, vocab {}; {} rounds in turn\n\n", request.sizes.parameters,
             request.sizes.activations(), request.sizes.vocab, request.rounds);
  fmt::print("| operation | tessera, median | limit in the same rounds | of the limit |\n");
  fmt::print("|---|---|---|---|\n");
  measure_kernels(request, samples);
  if (asks_for(request, "host")) { measure_host(request, samples); }
  if (asks_for(request, "launches")) { measure_launch(request, samples); }
  if (asks_for(request, "collectives")) { measure_device_collectives(request, samples); }
}

void choose(Request request, Samples& samples) {
  if (request.products.empty()) {
    const CudaSizes& sizes = request.sizes;
    add_products(request, training_products({.layers = 1,
                                             .hidden = sizes.hidden(),
                                             .heads = sizes.heads,
                                             .vocab = sizes.vocab,
                                             .seq = sizes.seq},
                                            sizes.batch));
  }
  fmt::print("{} products, {} rounds in turn\n\n", request.products.size(), request.rounds);
  fmt::print(
      "| product | fastest way, median | without a choice, in the same rounds | times as fast |\n");
  fmt::print("|---|---|---|---|\n");
  const kernels::ProductChoices choices =
      choose_products(request.products, request.rounds, request.spared,
                      [&](const TrainingProduct& product, const Comparison& result) {
                        const std::string shape = product.shape();
                        print_row(fmt::format("{}, {}", product.name, shape), result);
                        samples.add(product.name, shape, result);
                      });
  const std::string json = to_json(choices);
  AtomicFile file{request.choices};
  file.write(std::as_bytes(std::span{json}));
  file.finish();
  fmt::print("\n{} of {} products are in {}\n", choices.products.size(), request.products.size(),
             request.choices);
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const Request request = parse({arguments + 1, arguments + count});
    Samples samples;
    if (!request.choices.empty()) {
      choose(request, samples);
    } else if (request.groups == std::vector<std::string>{"nccl"}) {
      measure_job(request.job, samples);
    } else {
      measure_all(request, samples);
    }
    if (!request.json.empty() && !samples.empty()) { samples.write(request.json); }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
