// Kernels on a CUDA device beside what limits them, as a table of Markdown.
//
//   tessera_cuda_bench [--small] [--rounds N] [--parameters N] [GROUP...]
//   tessera_cuda_bench nccl [--small] [--rounds N] [--min-ctas N] [--max-ctas N] [--windows]
//     [--high-priority]
//
// Groups: adamw, memory, attention, products, collectives, launches; all of these unless some are
// named. `nccl` is a group by itself: the program is then one process of a launcher's job, and
// times collectives between them, with options of a run's (WorldOptions::nccl, channel_priority).
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/cuda/cases.hpp"
#include "bench/cuda/collectives_on_device.hpp"
#include "bench/cuda/job_collectives.hpp"
#include "bench/cuda/launches.hpp"

namespace {

using namespace tessera::bench;

struct Request {
  CudaSizes sizes;
  CollectiveOptions collectives = {.bytes = std::int64_t{256} << 20, .ranks = 4};
  int rounds = 11;
  int kernels = 1000;  ///< tiny ones, of which launches are timed
  JobOptions job;
  std::vector<std::string> groups;  ///< empty: all but nccl
};

Request parse(const std::vector<std::string>& arguments) {
  const std::vector<std::string> groups = {"adamw",       "memory",   "attention", "products",
                                           "collectives", "launches", "nccl"};
  Request request;
  JobOptions& job = request.job;
  job.bytes = {std::int64_t{64} << 10, std::int64_t{1} << 20, std::int64_t{16} << 20,
               std::int64_t{256} << 20};
  std::string of_nccl;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const auto number = [&] {
      if (i + 1 == arguments.size()) { throw std::runtime_error{argument + " needs a number"}; }
      return std::stoll(arguments[++i]);
    };
    if (argument == "--small") {
      request.sizes = {
          .parameters = 1000, .batch = 1, .seq = 8, .heads = 2, .head_size = 16, .vocab = 96};
      request.collectives.bytes = 1024;
      request.rounds = 1;
      request.kernels = 10;
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
      job.world.channel_priority = tessera::StreamPriority::high;
      of_nccl = argument;
    } else if (argument == "--parameters") {
      request.sizes.parameters = number();
    } else if (std::find(groups.begin(), groups.end(), argument) != groups.end()) {
      request.groups.push_back(argument);
    } else {
      throw std::runtime_error{fmt::format("'{}' is unknown: see the top of main.cpp", argument)};
    }
  }
  job.rounds = request.rounds;
  const auto joins = std::count(request.groups.begin(), request.groups.end(), "nccl");
  if (joins > 0 && request.groups.size() > 1) {
    throw std::runtime_error{"nccl is a group by itself: name no other"};
  }
  if (joins == 0 && !of_nccl.empty()) {
    throw std::runtime_error{of_nccl + " has no effect: it is for the group nccl"};
  }
  return request;
}

void print_row(const std::string& name, const Comparison& result) {
  const bool moves = result.work == Work::bytes;
  const auto rate = [&](const Timed& timed) {
    return moves ? fmt::format("{:.0f} GB/s", timed.rate(Work::bytes) * 1e-9)
                 : fmt::format("{:.1f} TFLOP/s", timed.rate(Work::flops) * 1e-12);
  };
  if (result.limits.empty()) {
    fmt::print("| {} | {} | not built in | |\n", name, rate(result.ours));
  }
  for (const Timed& limit : result.limits) {
    fmt::print("| {} | {} | {}: {} | {:.3f} |\n", name, rate(result.ours), limit.name, rate(limit),
               result.ratio(limit));
  }
  std::fflush(stdout);
}

bool asks_for(const Request& request, const std::string& group) {
  const auto& asked = request.groups;
  return asked.empty() || std::find(asked.begin(), asked.end(), group) != asked.end();
}

void measure_device_collectives(const Request& request) {
  CollectiveOptions options = request.collectives;
  options.rounds = request.rounds;
  for (const Comparison& result :
       measure_collectives(all_collectives(), options, device_memory())) {
    print_row(
        fmt::format("{}, {} ranks, {} bytes each", result.ours.name, options.ranks, options.bytes),
        result);
  }
}

void measure_job(const JobOptions& options) {
  bool first = true;
  measure_job_collectives(options, [&](const JobCollective& result) {
    if (std::exchange(first, false)) {
      fmt::print("| collective | bus bandwidth, median | a call |\n|---|---|---|\n");
    }
    fmt::print("| {}, {} ranks, {} bytes | {:.2f} GB/s | {:.1f} us |\n", result.name, result.ranks,
               result.bytes, result.bus_bandwidth() * 1e-9, result.seconds * 1e6);
    std::fflush(stdout);
  });
}

void print_launches(const LaunchCost& cost) {
  fmt::print("| launch of a kernel, host | {:.2f} us | | |\n", cost.host * 1e6);
  fmt::print("| launch of a kernel, device | {:.2f} us | | |\n", cost.device * 1e6);
}

void measure_all(const Request& request) {
  fmt::print(
      "{} parameters, {} tokens in sequences of {}, hidden {}, vocab {}; {} rounds in turn\n\n",
      request.sizes.parameters, request.sizes.tokens(), request.sizes.seq, request.sizes.hidden(),
      request.sizes.vocab, request.rounds);
  fmt::print("| operation | tessera, median | limit in the same rounds | of the limit |\n");
  fmt::print("|---|---|---|---|\n");
  {
    Rig rig;
    for (const auto contests :
         {adamw_contests, memory_contests, attention_contests, product_contests}) {
      for (const CudaContest& contest : contests(request.sizes)) {
        if (!asks_for(request, contest.group)) { continue; }
        print_row(contest.name, measure(contest.make(rig), request.rounds));
      }
    }
  }
  if (asks_for(request, "launches")) {
    Rig rig;
    print_launches(measure_launches(rig, request.rounds, request.kernels));
  }
  if (asks_for(request, "collectives")) { measure_device_collectives(request); }
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const Request request = parse({arguments + 1, arguments + count});
    if (request.groups == std::vector<std::string>{"nccl"}) {
      measure_job(request.job);
    } else {
      measure_all(request);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
