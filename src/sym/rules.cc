#include "sym/rules.h"

namespace tripod::sym {

// Soundness of each row is fuzzed from its text: for small values of its names that satisfy the condition, pattern
// and result are evaluated and compared. Divisors that may be zero are fine, there the pattern has no value.
const std::vector<Rule>& rules() {
  static const std::vector<Rule> table = {
      // name                  pattern                              condition                                result
      {"floordiv_zero",        "floordiv(0, b)",                    "",                                      "0"},
      {"floordiv_negative",    "floordiv(x, c)",                    "c < 0",                                 "floordiv(-x, -c)"},
      {"floordiv_whole",       "floordiv(q*b + r, b)",              "",                                      "q + floordiv(r, b)"},
      {"floordiv_small",       "floordiv(x, b)",                    "0 <= x && x < b",                       "0"},
      {"floordiv_below",       "floordiv(x, b)",                    "0 <= x + b && x < 0",                   "-1"},
      {"floordiv_offset",      "floordiv(x + c, c1)",               "0 < c1 && mod(c, gcd(x, c1)) != 0",     "floordiv(x + c - mod(c, gcd(x, c1)), c1)"},
      {"floordiv_multiple",    "floordiv(x + r, c)",                "gcd(x, c) == c",                        "floordiv(x, c) + floordiv(r, c)"},
      {"floordiv_cancel",      "floordiv(q*g, y*g)",                "",                                      "floordiv(q, y)"},
      {"floordiv_factor",      "floordiv(q*g + r, y*g)",            "0 <= r && r < g && 0 <= y",             "floordiv(q, y)"},
      {"floordiv_floordiv",    "floordiv(floordiv(x, a) + c, b)",   "0 <= b",                                "floordiv(x + a*c, a*b)"},
      {"floordiv_mod",         "floordiv(mod(x, y*b), b)",          "0 <= b && 0 <= y",                      "mod(floordiv(x, b), y)"},

      {"mod_zero",             "mod(0, b)",                         "",                                      "0"},
      {"mod_negative",         "mod(x, c)",                         "c < 0",                                 "-mod(-x, -c)"},
      {"mod_whole",            "mod(q*b + r, b)",                   "",                                      "mod(r, b)"},
      {"mod_small",            "mod(x, b)",                         "0 <= x && x < b",                       "x"},
      {"mod_below",            "mod(x, b)",                         "0 <= x + b && x < 0",                   "x + b"},
      {"mod_exact",            "mod(x, c)",                         "gcd(x, c) == c",                        "0"},
      {"mod_offset",           "mod(x + c, c1)",                    "0 < c1 && mod(c, gcd(x, c1)) != 0",     "mod(x + c - mod(c, gcd(x, c1)), c1) + mod(c, gcd(x, c1))"},
      {"mod_multiple",         "mod(x + r, c)",                     "gcd(x, c) == c",                        "mod(r, c)"},
      {"mod_cancel",           "mod(q*g, y*g)",                     "",                                      "mod(q, y)*g"},
      {"mod_factor",           "mod(q*g + r, y*g)",                 "0 <= r && r < g && 0 <= y",             "mod(q, y)*g + r"},
      {"mod_mod",              "mod(k*mod(x, y*b) + r, b)",         "",                                      "mod(k*x + r, b)"},
      {"mod_mod_constant",     "mod(k*mod(x, a) + r, c)",           "gcd(k*a, c) == c",                      "mod(k*x + r, c)"},

      {"min_first",            "min(x, y)",                         "x <= y",                                "x"},
      {"min_clamp",            "min(max(x, c), c1)",                "c <= c1",                               "max(min(x, c1), c)"},
      {"max_first",            "max(x, y)",                         "y <= x",                                "x"},

      {"lt_true",              "x < y",                             "x < y",                                 "1"},
      {"lt_false",             "x < y",                             "y <= x",                                "0"},
      {"le_true",              "x <= y",                            "x <= y",                                "1"},
      {"le_false",             "x <= y",                            "y < x",                                 "0"},
      {"eq_apart",             "x == y",                            "x < y",                                 "0"},
      {"eq_residue",           "x == y + c",                        "mod(c, gcd(x - y, 0)) != 0",            "0"},
      {"eq_zero",              "p == 0",                            "",                                      "!p"},
      {"eq_one",               "p == 1",                            "",                                      "p"},
      {"ne_apart",             "x != y",                            "x < y",                                 "1"},
      {"ne_residue",           "x != y + c",                        "mod(c, gcd(x - y, 0)) != 0",            "1"},
      {"ne_zero",              "p != 0",                            "",                                      "p"},
      {"ne_one",               "p != 1",                            "",                                      "!p"},

      {"not_lt",               "!(x < y)",                          "",                                      "y <= x"},
      {"not_le",               "!(x <= y)",                         "",                                      "y < x"},
      {"not_eq",               "!(x == y)",                         "",                                      "x != y"},
      {"not_ne",               "!(x != y)",                         "",                                      "x == y"},
      {"not_and",              "!(p && p1)",                        "",                                      "!p || !p1"},
      {"not_or",               "!(p || p1)",                        "",                                      "!p && !p1"},
      {"and_true",             "p && 1",                            "",                                      "p"},
      {"and_false",            "p && 0",                            "",                                      "0"},
      {"and_same",             "p && p",                            "",                                      "p"},
      {"and_never",            "at_most(x, y) && at_most(z, w)",    "0 < x - y + z - w",                     "0"},
      {"and_implied",          "at_most(x, y) && at_most(z, w)",    "z - w <= x - y",                        "x <= y"},
      {"and_not",              "p && !p",                           "",                                      "0"},
      {"or_true",              "p || 1",                            "",                                      "1"},
      {"or_false",             "p || 0",                            "",                                      "p"},
      {"or_same",              "p || p",                            "",                                      "p"},
      {"or_always",            "at_most(x, y) || at_most(z, w)",    "x - y + z - w <= 1",                    "1"},
      {"or_implied",           "at_most(x, y) || at_most(z, w)",    "z - w <= x - y",                        "z <= w"},
      {"or_not",               "p || !p",                           "",                                      "1"},

      {"select_true",          "select(1, x, y)",                   "",                                      "x"},
      {"select_false",         "select(0, x, y)",                   "",                                      "y"},
      {"select_same",          "select(p, x, x)",                   "",                                      "x"},
      {"select_ne",            "select(x != y, z, w)",              "",                                      "select(x == y, w, z)"},
      {"select_first",         "select(p, select(p, x, y), z)",     "",                                      "select(p, x, z)"},
      {"select_second",        "select(p, x, select(p, y, z))",     "",                                      "select(p, x, z)"},
      {"select_min_lt",        "select(x < y, x, y)",               "",                                      "min(x, y)"},
      {"select_min_le",        "select(x <= y, x, y)",              "",                                      "min(x, y)"},
      {"select_max_lt",        "select(x < y, y, x)",               "",                                      "max(x, y)"},
      {"select_max_le",        "select(x <= y, y, x)",              "",                                      "max(x, y)"},

      {"xor_same",             "x ^ x",                             "",                                      "0"},
      {"xor_zero",             "x ^ 0",                             "",                                      "x"},
  };
  return table;
}

}  // namespace tripod::sym
