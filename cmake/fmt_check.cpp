// Links only if src/base/fmt.cpp has what this calls of fmt: what the project's files call.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ctime>
#include <string>
#include <vector>

struct Point {
  int x;
};

template <>
struct fmt::formatter<Point> : fmt::formatter<int> {
  template <class Context>
  auto format(const Point& point, Context& context) const {
    return fmt::formatter<int>::format(point.x, context);
  }
};

int main(int count, char** arguments) {
  const std::vector<double> numbers(static_cast<std::size_t>(count), 0.5);
  const std::string text =
      fmt::format("{} {:>8.3f} {:x} {}", arguments[0], numbers.back(), count, Point{count}) +
      fmt::format("{} {:.{}e} {}", fmt::join(numbers, ", "), 1.5F, count, numbers) +
      fmt::format("{} {}", std::vector<std::string>{arguments[0]},
                  fmt::join(std::vector<std::size_t>{1}, " ")) +
      fmt::format(fmt::runtime(arguments[0]), count);
  fmt::print("{} {:%Y-%m-%d}\n", text, fmt::gmtime(std::time_t{0}));
  fmt::print(stderr, "{}\n", text.size());
  return 0;
}
