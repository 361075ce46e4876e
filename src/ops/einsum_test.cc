#include "ops/einsum.h"

#include <gtest/gtest.h>

namespace situ {
namespace {

TEST(Einsum, ReadsEquations) {
  const auto terms = [](const std::string& equation, const std::vector<size_t>& ranks) {
    const Result<EinsumTerms> t = einsum_terms(equation, ranks);
    if (!t.is_ok()) return "error: " + t.status().message();
    std::string text;
    for (const std::string& o : t->operands) text += o + ",";
    return text + "->" + t->result;
  };
  EXPECT_EQ(terms("bhqd, bhkd -> bhqk", {4, 4}), "bhqd,bhkd,->bhqk");
  EXPECT_EQ(terms("ij,jk", {2, 2}), "ij,jk,->ik");
  EXPECT_EQ(terms("ba", {2}), "ba,->ab");
  EXPECT_EQ(terms("...h,hk->...k", {3, 2}), "01h,hk,->01k");
  EXPECT_EQ(terms("...a,...a", {3, 2}), "01a,1a,->01");
  EXPECT_EQ(terms("i,j->ij", {1, 1}), "i,j,->ij");
  EXPECT_EQ(terms("ij->", {2}), "ij,->");
  for (const auto& [equation, ranks] : std::vector<std::pair<const char*, std::vector<size_t>>>{{"ii->i", {2}},
                                                                                                {"ij,jk->iz", {2, 2}},
                                                                                                {"ij", {3}},
                                                                                                {"ij,jk", {2}},
                                                                                                {"i1->i", {2}},
                                                                                                {"ij->ii", {2}},
                                                                                                {"a..b->a", {3}},
                                                                                                {"", {1}}})
    EXPECT_EQ(terms(equation, ranks).rfind("error", 0), 0u) << equation << terms(equation, ranks);
}

}  // namespace
}  // namespace situ
