#include "kernels/embedding/embedding.hpp"

#include "kernels/support/arguments.hpp"

namespace tessera::kernels {
namespace {

void check_sizes(const Arguments& check, std::int64_t batch, std::int64_t seq,
                 std::int64_t hidden) {
  check.sizes({{"batch", batch}, {"seq", seq}, {"hidden", hidden}});
}

}  // namespace

void embedding_forward(const EmbeddingForward& args, Stream stream) {
  const Arguments check{"embedding_forward"};
  check_sizes(check, args.batch, args.seq, args.hidden);
  const std::int64_t rows = args.batch * args.seq;
  check.sizes({{"first_token", args.first_token}});
  check.arrays({{"token_table", args.token_table, args.table_tokens == 0 ? 0 : args.hidden},
                {"y", args.y, rows * args.hidden}});
  check.given_of_one_dtype({{"token_table", args.token_table, args.hidden},
                            {"position_table", args.position_table, args.seq * args.hidden}});
  check.given("tokens", args.tokens, rows);
  check.table(stream).embedding_forward(args, stream);
}

void embedding_backward(const EmbeddingBackward& args, Stream stream) {
  const Arguments check{"embedding_backward"};
  check_sizes(check, args.batch, args.seq, args.hidden);
  const std::int64_t rows = args.batch * args.seq;
  check.sizes({{"first_token", args.first_token}});
  check.arrays({{"dy", args.dy, rows * args.hidden}});
  check.given_of_one_dtype({{"dtoken_table", args.dtoken_table, args.hidden},
                            {"dposition_table", args.dposition_table, args.seq * args.hidden}});
  check.given("tokens", args.tokens, rows);
  check.table(stream).embedding_backward(args, stream);
}

}  // namespace tessera::kernels
