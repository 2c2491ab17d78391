// Einsum as transposes, matmuls, products and sums: operands are joined from the left, and a label is summed away as
// soon as nothing to its right needs it.
#include <algorithm>
#include <cctype>
#include <set>

#include "onnx/pieces.h"

namespace tripod::importer {

namespace {

using Labels = std::vector<int>;  // a letter, or kEllipsis + i for the i-th dim from the right under "..."
constexpr int kEllipsis = 256;

struct Term {
  ValueId v;
  Labels labels;  // distinct, one a dim
};

bool contains(const Labels& l, int label) { return std::find(l.begin(), l.end(), label) != l.end(); }
int position(const Labels& l, int label) { return static_cast<int>(std::find(l.begin(), l.end(), label) - l.begin()); }

// --- the equation --------------------------------------------------------------------------------------------------

// One term of the equation; -1 stands for the ellipsis.
Labels parse_term(const NodeContext& c, std::string_view text) {
  Labels labels;
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char ch = static_cast<unsigned char>(text[i]);
    if (ch == ' ') continue;
    if (std::isalpha(ch)) {
      labels.push_back(ch);
    } else if (text.substr(i, 3) == "...") {
      if (contains(labels, -1)) c.fail("two ellipses in one term of the equation");
      labels.push_back(-1);
      i += 2;
    } else {
      c.fail("the equation has the character '" + std::string(1, static_cast<char>(ch)) + "'");
    }
  }
  return labels;
}

Labels with_ellipsis(const Labels& term, int dims) {
  Labels r;
  for (int label : term) {
    if (label != -1) r.push_back(label);
    for (int i = dims - 1; label == -1 && i >= 0; --i) r.push_back(kEllipsis + i);
  }
  return r;
}

struct Equation {
  std::vector<Labels> terms;
  Labels result;
};

Equation parse(const NodeContext& c) {
  const std::string text = c.attr_string("equation");
  const size_t arrow = text.find("->");
  const std::string_view all = text, left = all.substr(0, arrow);
  std::vector<Labels> terms;
  for (size_t at = 0; at <= left.size();) {
    const size_t comma = std::min(left.find(',', at), left.size());
    terms.push_back(parse_term(c, left.substr(at, comma - at)));
    at = comma + 1;
  }
  if (static_cast<int>(terms.size()) != c.num_inputs()) {
    c.fail("the equation \"" + text + "\" has " + std::to_string(terms.size()) + " terms for " +
           std::to_string(c.num_inputs()) + " inputs");
  }
  int dims = 0;  // under the ellipsis, which may cover fewer of one operand: those broadcast
  Equation e;
  for (size_t i = 0; i < terms.size(); ++i) {
    const int rank = c.rank(c.input(static_cast<int>(i)));
    const bool dots = contains(terms[i], -1);
    const int named = static_cast<int>(terms[i].size()) - (dots ? 1 : 0);
    if (dots ? rank < named : rank != named) {
      c.fail("term " + std::to_string(i) + " of the equation \"" + text + "\" does not fit " +
             c.text(c.input(static_cast<int>(i))));
    }
    e.terms.push_back(with_ellipsis(terms[i], rank - named));
    if (dots) dims = std::max(dims, rank - named);
  }
  if (arrow != std::string::npos) {
    e.result = with_ellipsis(parse_term(c, all.substr(arrow + 2)), dims);
    for (int label : e.result) {
      if (std::count(e.result.begin(), e.result.end(), label) > 1)
        c.fail("a label occurs twice in the result: " + text);
      if (std::none_of(e.terms.begin(), e.terms.end(), [&](const Labels& t) { return contains(t, label); })) {
        c.fail("the result of the equation \"" + text + "\" has a label that no term has");
      }
    }
    return e;
  }
  e.result = with_ellipsis({-1}, dims);  // then the labels that occur once, in the order of the letters
  for (int label = 'A'; label <= 'z'; ++label) {
    int64_t count = 0;
    for (const Labels& t : e.terms) count += std::count(t.begin(), t.end(), label);
    if (count == 1) e.result.push_back(label);
  }
  return e;
}

// --- terms ---------------------------------------------------------------------------------------------------------

Term in_order(const NodeContext& c, const Term& t, const Labels& order) {
  std::vector<int> perm;
  for (int label : order) perm.push_back(position(t.labels, label));
  return std::is_sorted(perm.begin(), perm.end()) ? t : Term{c.transpose(t.v, perm), order};
}

// A label twice in one term: its diagonal, taken from the flattened pair of dims with the step n + 1.
Term diagonal(const NodeContext& c, Term t) {
  for (size_t i = 0; i < t.labels.size(); ++i) {
    const auto twin = std::find(t.labels.begin() + static_cast<std::ptrdiff_t>(i) + 1, t.labels.end(), t.labels[i]);
    if (twin == t.labels.end()) continue;
    const int a = static_cast<int>(i), b = static_cast<int>(twin - t.labels.begin()), label = t.labels[i];
    const Expr n = c.dim(t.v, a);
    require_dim(c, t.v, b, n, "dims of one label must agree");
    std::vector<int> perm;
    Labels labels;
    Shape shape;
    for (int d = 0; d < c.rank(t.v); ++d) {
      if (d == a || d == b) continue;
      perm.push_back(d);
      labels.push_back(t.labels[d]);
      shape.push_back(c.dim(t.v, d));
    }
    perm.push_back(a);
    perm.push_back(b);
    shape.push_back(n * n);
    const ValueId pairs = c.reshape(c.transpose(t.v, perm), shape);
    const ValueId step = c.reshape(c.g.add_exprs({n + 1}), {});
    const ValueId index =
        c.g.add_given(OpKind::iota, {c.int_scalar(DType::i64, 0), step}, graph::NoAttr{}, Type::make(DType::i64, {n}));
    graph::AxisAttr axis;
    axis.axis = static_cast<int>(labels.size());
    labels.push_back(label);
    return diagonal(c, {c.add(OpKind::gather, {pairs, index}, axis), labels});
  }
  return t;
}

Term summed(const NodeContext& c, const Term& t, const std::set<int>& needed) {
  std::vector<int> axes;
  Labels rest;
  for (size_t i = 0; i < t.labels.size(); ++i) {
    if (needed.count(t.labels[i]) != 0) {
      rest.push_back(t.labels[i]);
    } else {
      axes.push_back(static_cast<int>(i));
    }
  }
  return axes.empty() ? t : Term{c.add(OpKind::reduce_sum, {t.v}, reduce_attr(axes, false)), rest};
}

// t with one dim for each of `order`, 1 where it does not have the label.
ValueId spread(const NodeContext& c, const Term& t, const Labels& order) {
  Labels own;
  for (int label : order) {
    if (contains(t.labels, label)) own.push_back(label);
  }
  const Term sorted = in_order(c, t, own);
  Shape shape;
  size_t next = 0;
  for (int label : order) shape.push_back(contains(own, label) ? c.dim(sorted.v, static_cast<int>(next++)) : c.expr(1));
  return c.reshape(sorted.v, shape);
}

// A and B joined, keeping the labels in `needed`.
Term join(const NodeContext& c, Term a, Term b, const std::set<int>& needed) {
  std::set<int> in_a = needed, in_b = needed;
  in_a.insert(b.labels.begin(), b.labels.end());
  in_b.insert(a.labels.begin(), a.labels.end());
  a = summed(c, a, in_a);
  b = summed(c, b, in_b);
  Labels batch, inner, left, right;
  for (int label : a.labels) {
    if (!contains(b.labels, label)) {
      left.push_back(label);
    } else {
      (needed.count(label) != 0 ? batch : inner).push_back(label);
    }
  }
  for (int label : b.labels) {
    if (!contains(a.labels, label)) right.push_back(label);
  }
  Labels order = batch;
  order.insert(order.end(), left.begin(), left.end());
  order.insert(order.end(), right.begin(), right.end());
  if (inner.empty() || (left.empty() && right.empty())) {
    order.insert(order.end(), inner.begin(), inner.end());
    const Term product{c.add(OpKind::mul, {spread(c, a, order), spread(c, b, order)}), order};
    return summed(c, product, needed);
  }
  // [batch.., left, inner] x [batch.., inner, right]
  const auto matrix = [&](const Term& t, const Labels& rows, const Labels& columns) {
    Labels full = batch;
    full.insert(full.end(), rows.begin(), rows.end());
    full.insert(full.end(), columns.begin(), columns.end());
    const ValueId v = in_order(c, t, full).v;
    const int nb = static_cast<int>(batch.size()), nr = static_cast<int>(rows.size());
    Shape shape(c.shape(v).begin(), c.shape(v).begin() + nb);
    shape.push_back(dims_product(c, v, nb, nb + nr));
    shape.push_back(dims_product(c, v, nb + nr, c.rank(v)));
    return c.reshape(v, shape);
  };
  Shape shape;
  for (int label : order) {
    const Term& from = contains(a.labels, label) ? a : b;
    shape.push_back(c.dim(from.v, position(from.labels, label)));
  }
  const ValueId product = c.add(OpKind::matmul, {matrix(a, left, inner), matrix(b, inner, right)});
  return {c.reshape(product, shape), order};
}

// A dim of 1 whose label is larger in another term says nothing: it goes.
void drop_stretched(const NodeContext& c, std::vector<Term>& terms) {
  for (Term& t : terms) {
    for (size_t i = t.labels.size(); i-- > 0;) {
      const int label = t.labels[i];
      if (!c.dim(t.v, static_cast<int>(i)).is_const(1)) continue;
      const bool larger = std::any_of(terms.begin(), terms.end(), [&](const Term& o) {
        return contains(o.labels, label) && !c.dim(o.v, position(o.labels, label)).is_const(1);
      });
      if (!larger) continue;
      t.v = c.squeeze(t.v, static_cast<int>(i));
      t.labels.erase(t.labels.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

std::vector<ValueId> einsum(NodeContext& c) {
  const Equation e = parse(c);
  std::vector<Term> terms;
  for (size_t i = 0; i < e.terms.size(); ++i) {
    if (i > 0) c.need_same_dtype(0, static_cast<int>(i));
    terms.push_back(diagonal(c, {c.input(static_cast<int>(i)), e.terms[i]}));
  }
  drop_stretched(c, terms);
  Term sum = terms[0];
  for (size_t i = 1; i <= terms.size(); ++i) {
    std::set<int> needed(e.result.begin(), e.result.end());
    for (size_t k = i + 1; k < terms.size(); ++k) needed.insert(terms[k].labels.begin(), terms[k].labels.end());
    sum = i < terms.size() ? join(c, sum, terms[i], needed) : summed(c, sum, needed);
  }
  return {in_order(c, sum, e.result).v};
}

constexpr Row kRows[] = {
    {"Einsum", 12, kMaxOpset, 1, -1, einsum},
};

}  // namespace

std::span<const Row> einsum_rows() { return kRows; }

}  // namespace tripod::importer
