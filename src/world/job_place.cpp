#include "world/job_place.hpp"

#include <fmt/format.h>

#include <charconv>
#include <initializer_list>
#include <system_error>

#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"

namespace tessera::world {
namespace {

constexpr int kPort = 29500;  // torchrun's default
constexpr int kLastPort = 65535;
constexpr std::size_t kMostHostBytes = 255;

std::optional<int> number(const ReadVariable& read, const char* variable, int least, int most) {
  const std::optional<std::string> text = read(variable);
  if (!text) { return {}; }
  int value = 0;
  const char* const end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc{} || stop != end || value < least || value > most) {
    throw ConfigError{
        fmt::format("the environment variable {} is \"{}\", which is not a number from {} to {}; "
                    "correct it, or unset it",
                    variable, shown(*text), least, most)};
  }
  return value;
}

std::optional<int> first_number(const ReadVariable& read, int size,
                                std::initializer_list<const char*> variables, int least) {
  for (const char* const variable : variables) {
    if (const auto value = number(read, variable, least, size)) { return value; }
  }
  return {};
}

std::optional<int> local_rank(LauncherKind kind, int size, const ReadVariable& read) {
  switch (kind) {
    case LauncherKind::mpirun:
      return first_number(read, size,
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "LOCAL_RANK"}, 0);
    case LauncherKind::srun:
      return first_number(read, size, {"SLURM_LOCALID", "LOCAL_RANK"}, 0);
    case LauncherKind::torchrun:
      return first_number(read, size, {"LOCAL_RANK"}, 0);
  }
  return {};
}

std::optional<int> local_size(LauncherKind kind, int size, const ReadVariable& read) {
  switch (kind) {
    case LauncherKind::mpirun:
      return first_number(read, size,
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "LOCAL_WORLD_SIZE"}, 1);
    case LauncherKind::srun: {
      for (const char* const variable : {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}) {
        if (read(variable) == "1") { return size; }
      }
      return {};
    }
    case LauncherKind::torchrun:
      return first_number(read, size, {"LOCAL_WORLD_SIZE"}, 1);
  }
  return {};
}

std::string host(const FoundJob& found, std::optional<int> local, const ReadVariable& read) {
  if (std::string chosen = chosen_meeting(read).host; !chosen.empty()) { return chosen; }
  if (const auto address = read("MASTER_ADDR"); address && !address->empty()) { return *address; }
  if (found.job.size == 1 || local == found.job.size) { return "127.0.0.1"; }
  const auto nodes = read("SLURM_JOB_NODELIST");
  const std::string example = nodes ? first_host(*nodes) : "node0";
  throw ConfigError{fmt::format(
      "{}, which may be on several machines: set MASTER_ADDR to the host of rank 0 "
      "(MASTER_ADDR={}) and MASTER_PORT to a free port there, the same for all processes; {}",
      started_text(found.job), shown(example), unset_text(found.job))};
}

int port(const ReadVariable& read) {
  if (const int chosen = chosen_meeting(read).port; chosen != 0) { return chosen; }
  const int master = number(read, "MASTER_PORT", 1, kLastPort).value_or(kPort);
  // torchrun's agent listens on MASTER_PORT itself, and tells its processes so.
  const bool agent = read("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (!agent) { return master; }
  return master < kLastPort ? master + 1 : master - 1;
}

/// A text that processes of one launch share and those of another do not.
std::string token(LauncherKind kind, const ReadVariable& read) {
  const auto join = [&](std::initializer_list<const char*> variables) {
    std::string all;
    for (const char* const variable : variables) { all += read(variable).value_or("") + "/"; }
    return all;
  };
  switch (kind) {
    case LauncherKind::mpirun:
      return join({"PMIX_NAMESPACE"});
    case LauncherKind::srun:
      return join({"SLURM_JOB_ID", "SLURM_STEP_ID"});
    case LauncherKind::torchrun:
      return join({"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"});
  }
  return {};
}

/// The secret that the starter of a job passes only to its processes.
std::string secret(const ReadVariable& read) {
  constexpr std::size_t kMostBytes = 1024;
  std::string text = read("TESSERA_JOB_SECRET").value_or("");
  if (text.size() <= kMostBytes) { return text; }
  throw ConfigError{
      fmt::format("the environment variable TESSERA_JOB_SECRET has {} bytes, but at most {} are "
                  "allowed; use 32 bytes",
                  text.size(), kMostBytes)};
}

}  // namespace

FoundPlace find_place(const FoundJob& found, const ReadVariable& read) {
  FoundPlace all;
  all.local_rank = local_rank(found.kind, found.job.size, read);
  all.local_size = local_size(found.kind, found.job.size, read);
  all.place.rank = found.job.rank;
  all.place.job.size = found.job.size;
  all.place.job.token = token(found.kind, read);
  all.place.job.secret = secret(read);
  all.place.meet.host = host(found, all.local_size, read);
  all.place.meet.port = port(read);
  return all;
}

comm::HostPort chosen_meeting(const ReadVariable& read) {
  comm::HostPort chosen{.host = read("TESSERA_RENDEZVOUS_ADDR").value_or("")};
  if (chosen.host.size() > kMostHostBytes) {
    throw ConfigError{fmt::format(
        "the environment variable TESSERA_RENDEZVOUS_ADDR has {} bytes, but a host has at most {}; "
        "correct it, or unset it",
        chosen.host.size(), kMostHostBytes)};
  }
  constexpr const char* kVariable = "TESSERA_RENDEZVOUS_PORT";
  if (read(kVariable) != "") { chosen.port = number(read, kVariable, 1, kLastPort).value_or(0); }
  return chosen;
}

std::string first_host(const std::string& list) {
  std::string first = list.substr(0, list.find_first_of(",["));
  if (first.size() == list.size() || list[first.size()] == ',') { return first; }
  const std::string inside = list.substr(first.size() + 1);
  return first + inside.substr(0, inside.find_first_of("-,]"));
}

}  // namespace tessera::world
