#include "comm/mpi/mpi_meeting.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <random>
#include <utility>
#include <vector>

#include "comm/control/rank_names.hpp"
#include "comm/control/tcp/frame.hpp"
#include "comm/control/tcp/listening.hpp"
#include "comm/control/wait_clock.hpp"
#include "comm/mpi/mpi_pause.hpp"
#include "comm/mpi/mpi_requests.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"

namespace tessera::comm {
namespace {

// All ranks receive as many bytes as rank 0 may send.
constexpr std::size_t kNoteBytes = 8192;
constexpr std::size_t kMostAddresses = 64;
constexpr std::size_t kMostProblemBytes = 4096;
constexpr int kMeetingTag = 0;

/// What rank 0 sends the others.
struct Note {
  std::string problem = {};  ///< why rank 0 does not listen; empty if it does
  std::string secret = {};
  int port = 0;
  std::vector<std::string> hosts = {};
  std::string remedy = {};  ///< what to check if the others do not find rank 0
};

std::string encode(const Note& note) {
  PayloadWriter writer;
  writer.text(note.problem).text(note.secret).text(note.remedy).number(note.port);
  writer.number(std::ssize(note.hosts));
  for (const std::string& host : note.hosts) { writer.text(host); }
  std::string bytes = writer.take();
  bytes.resize(kNoteBytes);
  return bytes;
}

Note decode_note(std::string_view bytes) {
  PayloadReader reader{bytes};
  Note note;
  note.problem = reader.text();
  note.secret = reader.text();
  note.remedy = reader.text();
  note.port = static_cast<int>(reader.number());
  for (std::int64_t left = reader.number(); left > 0; --left) {
    note.hosts.push_back(reader.text());
  }
  return note;
}

/// 128 random bits.
std::string make_secret() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

void check_known(const HostPort& choice) {
  std::string why;
  if (resolve(choice, why)) { return; }
  throw ConfigError{
      fmt::format("the environment variable TESSERA_RENDEZVOUS_ADDR is \"{}\", but {}; correct it, "
                  "or unset it",
                  shown(choice.host), why)};
}

enum class MachineCount : std::uint8_t { one, several };

std::string remedy(const Note& note, const HostPort& choice, MachineCount machines) {
  const auto tried = fmt::format("the others try {}", fmt::join(note.hosts, ", "));
  if (machines == MachineCount::several) {
    return tried +
           "; a firewall between the machines must let one port through, which "
           "TESSERA_RENDEZVOUS_PORT on rank 0 sets, as TESSERA_RENDEZVOUS_ADDR does the address";
  }
  if (!choice.host.empty()) {
    return tried + ", as TESSERA_RENDEZVOUS_ADDR on rank 0 says; unset it, or correct it";
  }
  return tried +
         "; if their containers have networks of their own, set TESSERA_RENDEZVOUS_ADDR on rank 0 "
         "to an address at which they reach it";
}

/// Listens, and says where the other ranks may try.
Note listen(const MpiProcess& process, const HostPort& choice, Socket& listener) {
  Note note{.secret = make_secret()};
  const bool chosen = !choice.host.empty();
  const MachineCount machines =
      process.on_one_machine() ? MachineCount::one : MachineCount::several;
  if (chosen) { check_known(choice); }
  if (chosen || machines == MachineCount::one) {
    note.hosts.push_back(chosen ? choice.host : "127.0.0.1");
  } else {
    note.hosts = own_addresses();
    note.hosts.resize(std::min(note.hosts.size(), kMostAddresses));
  }
  if (note.hosts.empty()) {
    throw ConfigError{
        "the ranks are on several machines, but rank 0's has no network address; check its "
        "interfaces, or set TESSERA_RENDEZVOUS_ADDR to an address at which the others reach it"};
  }
  const bool all = !chosen && machines == MachineCount::several;
  listener = listen_at({all ? "::" : note.hosts.front(), choice.port}, "TESSERA_RENDEZVOUS_PORT");
  note.port = port_of(listener);
  note.remedy = remedy(note, choice, machines);
  return note;
}

Note listen_or_say_why_not(const MpiProcess& process, const ChooseMeeting& choose,
                           Socket& listener) {
  try {
    return listen(process, choose(), listener);
  } catch (const std::exception& error) {  // the others are told, or they would wait
    return {.problem = std::string{error.what()}.substr(0, kMostProblemBytes)};
  }
}

/// Returns whether `requests` are done within `patience`.
bool done_within(MpiProcess& process, MpiRequests& requests, std::chrono::milliseconds time) {
  Patience patience{time};
  MpiPause between;
  for (;;) {
    {
      const MpiCalls calls{process};
      (void)requests.test();
    }
    if (requests.done()) { return true; }
    if (patience.over()) { return false; }
    between.pause();
  }
}

/// A send that ends only when it is received: rank 0 then need not be in MPI any longer, and knows
/// which ranks have not come.
void tell(MpiProcess& process, const std::string& note, std::chrono::milliseconds patience) {
  MpiRequests requests{process, static_cast<std::size_t>(process.size())};
  {
    const MpiCalls calls{process};
    for (int peer = 1; peer < process.size(); ++peer) {
      requests.send_matched(process.meeting(), note.data(), note.size(), peer, kMeetingTag);
    }
  }
  if (done_within(process, requests, patience)) { return; }
  throw CommError{fmt::format(
      "rank 0 waited {} ms for {} to begin the run; every process must call run() as often as the "
      "others",
      patience.count(), RankNames{}.of(requests.peers()))};
}

std::string hear(MpiProcess& process, std::chrono::milliseconds patience) {
  std::string note(kNoteBytes, '\0');
  MpiRequests requests{process, 1};
  {
    const MpiCalls calls{process};
    requests.receive(process.meeting(), note.data(), note.size(), 0, kMeetingTag);
  }
  if (done_within(process, requests, patience)) { return note; }
  throw CommError{
      fmt::format("rank {} waited {} ms for rank 0 to begin the run and say where the ranks meet; "
                  "every process must call run() as often as the others",
                  process.rank(), patience.count())};
}

}  // namespace

MpiMeeting meet_over_mpi(MpiProcess& process, const ChooseMeeting& choose,
                         std::chrono::milliseconds patience) {
  MpiMeeting meeting;
  meeting.place.rank = process.rank();
  meeting.place.job.size = process.size();
  if (process.size() == 1) { return meeting; }
  Note note;
  if (process.rank() == 0) {
    note = listen_or_say_why_not(process, choose, meeting.listener);
    tell(process, encode(note), patience);
  } else {
    note = decode_note(hear(process, patience));
  }
  if (!note.problem.empty()) { throw ConfigError{note.problem}; }
  meeting.place.job.secret = note.secret;
  meeting.place.job.secret_from = "rank 0 makes one for each run";
  meeting.place.job.remedy = note.remedy;
  meeting.place.meet = {note.hosts.front(), note.port};
  for (std::size_t i = 1; i < note.hosts.size(); ++i) {
    meeting.place.others.push_back({note.hosts[i], note.port});
  }
  return meeting;
}

}  // namespace tessera::comm
