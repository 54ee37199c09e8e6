// The addresses of MASTER_ADDR that rank 0 listens on, and those that the other ranks try. Names
// with several addresses are made up here; the system resolves all others.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <atomic>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/control/tcp/listening.hpp"
#include "control/meeting.hpp"
#include "tessera/base/error.hpp"

namespace {

using Resolve = int(const char*, const char*, const addrinfo*, addrinfo**);

struct MadeUp {
  std::vector<std::string> addresses;
  std::chrono::milliseconds takes{};
};

std::map<std::string, MadeUp>& made_up() {
  static std::map<std::string, MadeUp> names;
  return names;
}

}  // namespace

// Replaces the system's resolver for made-up names and asks it for each of their addresses.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints,
                           addrinfo** list) {
  static auto* const system = reinterpret_cast<Resolve*>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  const auto found = name == nullptr ? made_up().end() : made_up().find(name);
  if (found == made_up().end()) { return system(name, service, hints, list); }
  std::this_thread::sleep_for(found->second.takes);
  addrinfo** end = list;
  for (const std::string& address : found->second.addresses) {
    const int status = system(address.c_str(), service, hints, end);
    if (status != 0) { return status; }
    while (*end != nullptr) { end = &(*end)->ai_next; }
  }
  return 0;
}

namespace tessera::test::addresses_test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kName = "node0.tessera.test";
constexpr const char* kNotHere = "198.51.100.1";  // reserved for documentation

class NameOf {
 public:
  explicit NameOf(std::vector<std::string> addresses, std::chrono::milliseconds takes = {}) {
    made_up()[kName] = {std::move(addresses), takes};
  }
  NameOf(const NameOf&) = delete;
  NameOf& operator=(const NameOf&) = delete;
  ~NameOf() { made_up().clear(); }
};

bool is_reached(const std::string& host, int port) {
  std::string why;
  comm::WaitClock clock{2s};
  return static_cast<bool>(comm::connect_to({host, port}, clock, clock.now() + 2s, why));
}

TEST(OwnAddresses, AreThoseThatReachMoreThanThisMachineOrOneLink) {
  const auto reaches = [](const char* host) {
    std::string why;
    const comm::Addresses address = comm::resolve({host, 1}, why);
    return address && comm::is_of_network(*address->ai_addr);
  };
  for (const char* const host :
       {"192.0.2.7", "10.0.0.1", "169.253.1.1", "2001:db8::7", "fd00::1"}) {
    EXPECT_TRUE(reaches(host)) << host;
  }
  for (const char* const host : {"127.0.0.1", "127.0.1.1", "169.254.3.4", "::1", "fe80::1"}) {
    EXPECT_FALSE(reaches(host)) << host;
  }
}

TEST(Listening, UsesOnlyTheGivenAddress) {
  const auto own = comm::own_addresses();
  if (own.empty()) { GTEST_SKIP() << "this machine has the loopback alone"; }
  const int port = free_port();
  const comm::Socket listener = comm::listen_at({own[0], port});
  EXPECT_EQ(comm::listening_text(listener), (comm::HostPort{own[0], port}.text()));
  EXPECT_TRUE(is_reached(own[0], port));
  EXPECT_FALSE(is_reached("127.0.0.1", port));
}

// Rank 0 of a job on several machines listens on all addresses and names each.
TEST(Listening, IsReachedAtEachOwnAddress) {
  const comm::Socket listener = comm::listen_at({"::", 0});
  for (const std::string& host : comm::own_addresses()) {
    EXPECT_FALSE(comm::is_loopback(host));
    EXPECT_TRUE(is_reached(host, comm::port_of(listener))) << host;
  }
}

// Behind address translation, other ranks use an address that this machine does not know.
TEST(Listening, UsesAllAddressesIfTheGivenOneIsNotLocal) {
  const NameOf name{{kNotHere, "127.0.1.1"}};
  for (const char* const host : {kNotHere, kName}) {
    const int port = free_port();
    const comm::Socket listener = comm::listen_at({host, port});
    EXPECT_EQ(comm::listening_text(listener),
              "port " + std::to_string(port) + " of all its addresses");
    EXPECT_TRUE(is_reached("127.0.0.1", port));
  }
}

TEST(Listening, SkipsAddressesOfANameThatAreNotLocal) {
  const auto own = comm::own_addresses();
  if (own.empty()) { GTEST_SKIP() << "this machine has the loopback alone"; }
  const NameOf name{{"127.0.1.1", kNotHere, own[0]}};
  const int port = free_port();
  const comm::Socket listener = comm::listen_at({kName, port});
  EXPECT_EQ(comm::listening_text(listener), (comm::HostPort{own[0], port}.text()));
}

TEST(Listening, SkipsAnAddressWhosePortIsTaken) {
  const auto own = comm::own_addresses();
  if (own.size() < 2) { GTEST_SKIP() << "this machine has one address beside the loopback"; }
  const NameOf name{{own[0], own[1]}};
  const int port = free_port();
  const comm::Socket other = comm::listen_at({own[0], port});
  const comm::Socket listener = comm::listen_at({kName, port});
  EXPECT_EQ(comm::listening_text(listener), (comm::HostPort{own[1], port}.text()));
}

TEST(Listening, SaysWhyEachAddressFails) {
  const auto own = comm::own_addresses();
  if (own.empty()) { GTEST_SKIP() << "this machine has the loopback alone"; }
  const NameOf name{{kNotHere, own[0]}};
  const int port = free_port();
  const comm::Socket other = comm::listen_at({own[0], port});
  std::string said;
  try {
    (void)comm::listen_at({kName, port});
  } catch (const ConfigError& error) { said = error.what(); }
  EXPECT_EQ(said,
            "rank 0 cannot listen on port " + std::to_string(port) +
                ", where the ranks are to meet: another program uses it; set MASTER_PORT to a "
                "free one, the same for all ranks (tried " +
                kNotHere + ": Cannot assign requested address; " + own[0] +
                ": Address already in use)");
}

// Rank 0 listens on the second address; on the first, another program answers.
TEST(Joining, TriesEachAddressOfANameUntilRankZeroAnswers) {
  const NameOf name{{"127.0.0.2", "127.0.0.3"}};
  Meeting meeting{2, 5s};
  const comm::Socket other = comm::listen_at({"127.0.0.2", meeting.port()});
  std::atomic<bool> stop = false;
  std::thread answers{[&] {
    while (!stop) {
      if (comm::Socket line = comm::accept_from(other)) {
        (void)line.send_some("HTTP/1.1 400\r\n", 14);
      }
      std::this_thread::sleep_for(1ms);
    }
  }};
  for (const int rank : {0, 1}) {
    comm::JobPlace place = place_of(rank, 2, meeting.port());
    place.meet.host = rank == 0 ? "127.0.0.3" : kName;
    meeting.start(place, [](comm::TcpControlPlane& control) {
      (void)control.exchange(comm::CallKind::end, {});
    });
  }
  meeting.join();
  stop = true;
  answers.join();
  EXPECT_EQ(meeting.error(0) + meeting.error(1), "");
}

TEST(Joining, ReportsTheOutcomeOfEachAddressAndWhereRankZeroListens) {
  const NameOf name{{"127.0.0.2", "127.0.0.3"}};
  Meeting meeting{2, 300ms};
  meeting.start(0, [](comm::TcpControlPlane&) {});  // on 127.0.0.1
  comm::JobPlace elsewhere = place_of(1, 2, meeting.port());
  elsewhere.meet.host = kName;
  meeting.start(elsewhere, [](comm::TcpControlPlane&) {});
  meeting.join();
  const std::string port = std::to_string(meeting.port());
  EXPECT_THAT(meeting.error(1),
              AllOf(HasSubstr("rank 1 did not find rank 0 at node0.tessera.test:"),
                    HasSubstr("(127.0.0.2: Connection refused; 127.0.0.3: "
                              "Connection refused)"),
                    HasSubstr("MASTER_ADDR and MASTER_PORT must name")));
  EXPECT_THAT(meeting.error(0), AllOf(HasSubstr("rank 1 of 2 did not reach the rendezvous"),
                                      HasSubstr("which listens at 127.0.0.1:" + port + ":")));
}

TEST(Joining, CountsTheTimeInWhichANameIsResolved) {
  const NameOf name{{"127.0.0.2"}, 1200ms};
  comm::JobPlace place = place_of(1, 2, free_port());
  place.meet.host = kName;
  const auto begin = std::chrono::steady_clock::now();
  try {
    const comm::TcpControlPlane control{place, 1s, 1s};
    ADD_FAILURE() << "nothing listens there";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("within 1000 ms (127.0.0.2: Connection refused"),
                                    HasSubstr("resolving node0.tessera.test took ")));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 8s);
}

}  // namespace
}  // namespace tessera::test::addresses_test
