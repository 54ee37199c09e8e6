// How the processes of an MPI job meet, and what they say if they cannot.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "mpi/mpi_job.hpp"
#include "support/places.hpp"

namespace tessera::test::mpi_meeting_test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;
using Clock = std::chrono::steady_clock;

struct End {
  int status = 0;
  std::string output;
  Clock::duration took{};
};

End end_of(int ranks, const Words& command) {
  const auto begin = Clock::now();
  MpiJob job{ranks, command};
  const int status = job.wait();
  return {status, job.output(), Clock::now() - begin};
}

/// The end of a job with these variables.
End end_with(const Words& variables, const std::string& way = "succeed", int ranks = 3) {
  Words command{"env"};
  command.insert(command.end(), variables.begin(), variables.end());
  command.insert(command.end(), {test::kFailingRank, way, "600"});
  return end_of(ranks, command);
}

void succeeds(const End& end) {
  EXPECT_EQ(end.status, 0);
  EXPECT_EQ(end.output, "");
}

void reports_once(const End& end, int status) {
  EXPECT_EQ(end.status, status) << end.output;
  EXPECT_EQ(end.output.find("error: "), end.output.rfind("error: ")) << end.output;
}

TEST(MpiMeeting, ReadsNoVariableOfAnotherLauncher) {
  succeeds(end_with({"MASTER_ADDR=198.51.100.1", "MASTER_PORT=x", "RANK=7", "WORLD_SIZE=9"}));
}

TEST(MpiMeeting, TheLongestDeadlineOfAllIsUsable) {
  succeeds(end_of(2, {test::kFailingRank, "succeed",
                      std::to_string(std::chrono::milliseconds::max().count())}));
}

TEST(MpiMeeting, ReadsItsVariablesOnRankZeroOnly) {
  const std::string elsewhere =
      "[ ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} = 0 ] || export TESSERA_RENDEZVOUS_PORT=x; "
      "exec \"$0\" succeed 600";
  succeeds(end_of(2, {"sh", "-c", elsewhere, test::kFailingRank}));
  succeeds(end_with({"TESSERA_RENDEZVOUS_PORT=x"}, "succeed", 1));
}

TEST(MpiMeeting, EmptyVariablesCountAsUnset) {
  succeeds(end_with({"TESSERA_RENDEZVOUS_ADDR=", "TESSERA_RENDEZVOUS_PORT="}));
}

TEST(MpiMeeting, AVariableThatIsNoPortIsReportedOnceAndAtOnce) {
  const End end = end_with({"TESSERA_RENDEZVOUS_PORT=x"});
  reports_once(end, 2);
  EXPECT_LT(end.took, 8s);
  EXPECT_THAT(end.output, HasSubstr("TESSERA_RENDEZVOUS_PORT is \"x\", which is not a number"));
}

TEST(MpiMeeting, ANameThatRankZeroCannotResolveIsReportedOnceAndAtOnce) {
  const End end = end_with({"TESSERA_RENDEZVOUS_ADDR=no.such.host.invalid"});
  reports_once(end, 2);
  EXPECT_LT(end.took, 8s);
  EXPECT_THAT(
      end.output,
      HasSubstr("the environment variable TESSERA_RENDEZVOUS_ADDR is "
                "\"no.such.host.invalid\", but the host no.such.host.invalid is not known"));
}

// The address is reserved for documentation: no rank can reach it.
TEST(MpiMeeting, RanksThatCannotConnectEndTheJobWithAddressPortAndRemedy) {
  const End end = end_with({"TESSERA_RENDEZVOUS_ADDR=198.51.100.1"});
  reports_once(end, 2);
  EXPECT_LT(end.took, 20s);
  EXPECT_THAT(end.output,
              AllOf(HasSubstr("error: ranks 1, 2 of 3 did not reach the rendezvous"),
                    HasSubstr("which listens at port "),
                    HasSubstr("the others try 198.51.100.1, as TESSERA_RENDEZVOUS_ADDR on rank 0 "
                              "says; unset it")));
  EXPECT_THAT(end.output, Not(HasSubstr("firewall")));
}

/// A port of the loopback that another program has.
class TakenPort {
 public:
  TakenPort() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto& generic = reinterpret_cast<sockaddr&>(address);
    socklen_t bytes = sizeof address;
    EXPECT_EQ(::bind(socket_, &generic, bytes), 0);
    EXPECT_EQ(::listen(socket_, 1), 0);
    EXPECT_EQ(::getsockname(socket_, &generic, &bytes), 0);
    text_ = std::to_string(ntohs(address.sin_port));
  }
  TakenPort(const TakenPort&) = delete;
  TakenPort& operator=(const TakenPort&) = delete;
  ~TakenPort() { ::close(socket_); }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  int socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string text_;
};

TEST(MpiMeeting, APortThatIsTakenIsReportedOnce) {
  const TakenPort port;
  const End end = end_with({"TESSERA_RENDEZVOUS_PORT=" + port.text()});
  reports_once(end, 2);
  EXPECT_LT(end.took, 8s);
  EXPECT_THAT(end.output, HasSubstr("rank 0 cannot listen on port " + port.text() +
                                    ", where the ranks are to meet: another program uses it; set "
                                    "TESSERA_RENDEZVOUS_PORT to a free one"));
}

TEST(MpiMeeting, ARankThatDoesNotBeginARunIsNamed) {
  const End end = end_with({}, "again");
  reports_once(end, 4);
  EXPECT_LT(end.took, 20s);
  EXPECT_THAT(end.output, HasSubstr("rank 0 waited 10000 ms for rank 1 to begin the run; every "
                                    "process must call run() as often"));
}

}  // namespace
}  // namespace tessera::test::mpi_meeting_test
