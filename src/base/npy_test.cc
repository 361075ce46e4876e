#include "base/npy.h"

#include <gtest/gtest.h>

#include <random>

#include "base/test_npy.h"
#include "text/test_models.h"

namespace situ {
namespace {

using test_npy::header;
using test_npy::kFloats;
using test_npy::npy;

Result<Tensor> read(const std::string& bytes) {
  static const testing::TempFolder folder;
  folder.write("x.npy", bytes);
  return read_npy(folder.path() / "x.npy");
}

TEST(Npy, ReadsEveryTypeAndVersion) {
  for (const int version : {1, 2, 3}) {
    const Tensor t = read(npy(header("'<f4'", "(2, 3)"), kFloats, version)).value();
    EXPECT_EQ(t.type(), DType::kF32);
    EXPECT_EQ(t.dims(), (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(t.to_f64(), (std::vector<double>{1, -2, 0.5, 0, 10, 100}));
  }
  EXPECT_EQ(read(npy(header("'<i8'", "(2,)"), std::string("\x05\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", 16)))
                ->to_i64(),
            (std::vector<int64_t>{5, -1}));
  EXPECT_EQ(read(npy(header("'<i4'", "(1, 1)"), std::string("\xfe\xff\xff\xff", 4)))->to_i64(),
            (std::vector<int64_t>{-2}));
  EXPECT_EQ(read(npy(header("'|b1'", "(3,)"), std::string("\1\0\1", 3)))->to_i64(), (std::vector<int64_t>{1, 0, 1}));
  EXPECT_EQ(read(npy(header("'<f2'", "()"), std::string("\x00\x3c", 2)))->to_f64(), (std::vector<double>{1}));
  EXPECT_EQ(read(npy(header("'<f4'", "(0, 3)"), ""))->count(), 0);
  // As other writers have it.
  EXPECT_TRUE(read(npy(R"({"shape":(2L,3L),"fortran_order":False,"descr":"<f4"})", kFloats)).is_ok());
}

TEST(Npy, RefusesWhatItCannotRead) {
  const std::string good = header("'<f4'", "(2, 3)");
  const std::pair<std::string, const char*> wrong[] = {
      {"", "begins with \\x93NUMPY"},
      {"PK\x03\x04 an archive of arrays", "begins with \\x93NUMPY"},
      {npy(good, kFloats, 4), "its format should be 1.0, 2.0 or 3.0, is 4.0"},
      {npy(good, kFloats, 1, 7), "is 1.7"},
      {npy(good, kFloats).substr(0, 9), "ends in its header"},
      {npy(good, kFloats).substr(0, 30), "ends in its header"},
      {npy(good, kFloats.substr(1)), "asks for 24 bytes of elements, it has 23"},
      {npy(good, kFloats + "x"), "asks for 24 bytes of elements, it has 25"},
      {npy(header("'<f4'", "(2, 3)", "True"), kFloats), "are in Fortran order"},
      {npy(header("'>f4'", "(2, 3)"), kFloats), "are '>f4' (big endian)"},
      {npy(header("'|O'", "(2, 3)"), kFloats), "are '|O' (pickled objects)"},
      {npy(header("'<f8'", "(3,)"), kFloats), "are '<f8'"},
      {npy(header("'<U6'", "(1,)"), kFloats), "are '<U6'"},
      {npy(header("[('a', '<f4')]", "(6,)"), kFloats), "one of a single number"},
      {npy(header("'<f4'", "(-6,)"), kFloats), "an extent from 0"},
      {npy(header("'<f4'", "(99999999999999999999,)"), kFloats), "an extent from 0"},
      {npy(header("'<f4'", "(4611686018427387904, 2)"), kFloats), "more elements than any memory"},
      {npy(header("'<f4'", "(0, 4611686018427387904, 2)"), ""), "more elements than any memory"},
      {npy(header("'<f4'", "(9223372036854775807,)"), kFloats), "more elements than any memory"},
      {npy(header("'<f4'", "(1000000000000,)"), kFloats), "asks for 4000000000000 bytes of elements, it has 24"},
      {npy(header("'<f4'", "(1,1,1,1,1,1,1,1,6)"), kFloats), "at most 8 dimensions"},
      {npy(header("'<f4'", "6"), kFloats), "a tuple is wanted"},
      {npy(header("'<f4'", "(6,)") + "x", kFloats), "its end is wanted"},
      {npy("{'descr': '<f4'}", kFloats), "descr, fortran_order and shape"},
      {npy("{'descr': '<f4', 'other': 5}", kFloats), "unknown key 'other'"},
      {npy("[1, 2]", kFloats), "a dictionary is wanted"},
      {npy(header("'|b1'", "(24,)"), kFloats), "should be a bool, 0 or 1, is 128"},
      {std::string("\x93NUMPY\x02\x00\xff\xff\xff\x7f", 12), "at most 65536 bytes, has 2147483647"}};
  for (const auto& [bytes, words] : wrong) {
    const Result<Tensor> refused = read(bytes);
    ASSERT_FALSE(refused.is_ok()) << words;
    EXPECT_NE(refused.status().message().find("x.npy: "), std::string::npos);
    EXPECT_NE(refused.status().message().find(words), std::string::npos) << refused.status().message();
    EXPECT_EQ(refused.status().message().find('\n'), std::string::npos) << refused.status().message();
  }
  testing::TempFolder folder;
  EXPECT_NE(read_npy(folder.path()).status().message().find("not a regular file"), std::string::npos);
  EXPECT_FALSE(read_npy(folder.path() / "missing.npy").is_ok());
  EXPECT_FALSE(read_npy("/dev/zero").is_ok());
}

// Whatever a file has: an error, or a tensor of as many bytes as stand behind its header.
TEST(Npy, DamagedFilesNeverDoHarm) {
  std::mt19937 random(7);
  const std::string files[] = {npy(header("'<f4'", "(2, 3)"), kFloats), npy(header("'|b1'", "(24,)"), kFloats, 2),
                               npy(header("'<i8'", "(1, 3, 1)"), kFloats, 3)};
  int read_well = 0;
  for (int round = 0; round < 600; ++round) {
    std::string bytes = files[random() % std::size(files)];
    for (unsigned i = random() % 4; i-- > 0;) {
      const size_t at = random() % bytes.size();
      constexpr std::string_view kLikely("0123456789(),'{}: <>|fib-L\0\xff", 28);
      bytes[at] = random() % 2 ? static_cast<char>(random()) : kLikely[random() % kLikely.size()];
    }
    if (random() % 3 == 0) bytes.resize(random() % (bytes.size() + 1));
    if (random() % 8 == 0) bytes.insert(random() % (bytes.size() + 1), std::string(random() % 40, '('));
    const Result<Tensor> t = read(bytes);
    if (t.is_ok()) {
      ++read_well;
      EXPECT_LE(static_cast<size_t>(t->bytes()), bytes.size());
    } else {
      EXPECT_NE(t.status().message(), "");
    }
  }
  EXPECT_GT(read_well, 30);
}

}  // namespace
}  // namespace situ
