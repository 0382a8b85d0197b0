// SPDX-License-Identifier: Apache-2.0
/* Matching as a forest. Inside a block the cheapest joins of any number are edges of the block's
 * minimum spanning tree (Kruskal), so the first step keeps one edge per token (Prim) and the second
 * takes the cheapest of the whole segment. Adjacent pairing has its edges already: each token and
 * the next. When one round cannot remove enough, what is left forms new blocks. */
#include "reduce/match.h"

#include <math.h>

#include "reduce/select.h"

enum { LANES = 8, MAX_BLOCK = 64 };

/* Laid out over the scratch; all [n]. */
typedef struct edges {
    float *cost;      /* of the join of token i and token other[i]; INFINITY: none */
    int32_t *other;
    float *norm;      /* squared */
    float *minus;     /* negated costs of a round */
    int32_t *list;    /* tokens of a round */
    int32_t *chosen, *keys;
} edges;

static edges lay_out(void *scratch, int32_t n) {
    size_t step = ((size_t)n + 15) & ~(size_t)15;
    float *f = scratch;
    int32_t *i = (int32_t *)(f + 3 * step);
    return (edges){.cost = f, .norm = f + step, .minus = f + 2 * step, .other = i, .list = i + step, .chosen = i + 2 * step, .keys = i + 3 * step};
}

size_t ftki_match_scratch_bytes(int32_t n, int32_t block) {
    (void)block;
    return (((size_t)n + 15) & ~(size_t)15) * 7 * sizeof(float);
}

/* Eight partial sums, so that the compiler may use vectors and every machine rounds alike. */
static float dot(const float *restrict a, const float *restrict b, int32_t dim) {
    float sum[LANES] = {0};
    int32_t d = 0;
    for (; d + LANES <= dim; d += LANES)
        for (int32_t k = 0; k < LANES; k++) sum[k] += a[d + k] * b[d + k];
    for (; d < dim; d++) sum[d % LANES] += a[d] * b[d];
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

static const float *row(const ftki_match *m, int32_t i) { return m->rows + (size_t)i * m->stride; }
static bool is_protected(const ftki_match *m, int32_t i) { return m->protected_flags != NULL && m->protected_flags[i]; }

static float pair_cost(const ftki_match *m, const float *norm, int32_t i, int32_t j) {
    float product = dot(row(m, i), row(m, j), m->dim), size, distance, importance = 1.0f;
    if (m->similarity == FTK_SIMILARITY_EUCLIDEAN) {
        size = norm[i] + norm[j];
        distance = size > 0.0f ? 1.0f - 2.0f * product / size : 0.0f;
    } else {
        size = sqrtf(norm[i]) * sqrtf(norm[j]);
        distance = size > 0.0f ? 1.0f - product / size : norm[i] == norm[j] ? 0.0f : 1.0f;
    }
    if (m->importance != NULL)
        importance = m->importance[i] < m->importance[j] ? m->importance[i] : m->importance[j];
    float cost = (distance > 0.0f ? distance : 0.0f) * importance;
    return cost < 3.0e38f ? cost : 3.0e38f; /* NaN and infinities: last of all, but still possible */
}

/* Prim over tokens [n], ascending: each but the first gets the edge by which it joined. */
static void span_block(const ftki_match *m, edges *x, const int32_t *tokens, int32_t n) {
    float best[MAX_BLOCK];
    int32_t from[MAX_BLOCK], open[MAX_BLOCK], n_open = n - 1, last = tokens[0];
    x->cost[last] = INFINITY;
    for (int32_t i = 0; i < n_open; i++) open[i] = tokens[i + 1], best[i] = INFINITY, from[i] = last;
    while (n_open > 0) {
        int32_t at = 0;
        for (int32_t i = 0; i < n_open; i++) {
            float c = pair_cost(m, x->norm, last < open[i] ? last : open[i], last < open[i] ? open[i] : last);
            if (c < best[i]) best[i] = c, from[i] = last;
            if (best[i] < best[at]) at = i;
        }
        last = open[at];
        x->cost[last] = best[at];
        x->other[last] = from[at];
        n_open--;
        for (int32_t i = at; i < n_open; i++) open[i] = open[i + 1], best[i] = best[i + 1], from[i] = from[i + 1];
    }
}

static void link_tokens(const ftki_match *m, edges *x, const int32_t *tokens, int32_t n) {
    if (n == 0) return;
    if (m->pairing == FTK_PAIRING_BLOCK) {
        span_block(m, x, tokens, n);
        return;
    }
    x->cost[tokens[0]] = INFINITY;
    for (int32_t i = 1; i < n; i++) {
        x->cost[tokens[i]] = pair_cost(m, x->norm, tokens[i - 1], tokens[i]);
        x->other[tokens[i]] = tokens[i - 1];
    }
}

void ftki_match_costs(const ftki_match *m, int32_t begin, int32_t end, void *scratch) {
    edges x = lay_out(scratch, m->n);
    int32_t block = m->block > 1 && m->block <= MAX_BLOCK ? m->block : 32, tokens[MAX_BLOCK];
    if (end > m->n) end = m->n;
    for (int32_t i = begin; i < end; i++) x.norm[i] = dot(row(m, i), row(m, i), m->dim), x.cost[i] = INFINITY;
    if (m->pairing == FTK_PAIRING_ADJACENT) {
        /* The edge of a token leads back; the neighbour may belong to another worker, so its norm is
         * computed anew. */
        for (int32_t i = begin > 1 ? begin : 1; i < end; i++) {
            if (is_protected(m, i) || is_protected(m, i - 1)) continue;
            float before = x.norm[i - 1];
            if (i == begin) before = dot(row(m, i - 1), row(m, i - 1), m->dim);
            const float norms[2] = {before, x.norm[i]};
            ftki_match pair = *m;
            pair.rows = row(m, i - 1);
            if (m->importance != NULL) pair.importance = m->importance + i - 1;
            x.cost[i] = pair_cost(&pair, norms, 0, 1);
            x.other[i] = i - 1;
        }
        return;
    }
    for (int32_t b = begin; b < end; b += block) {
        int32_t n = 0;
        for (int32_t i = b; i < end && i < b + block; i++)
            if (!is_protected(m, i)) tokens[n++] = i;
        link_tokens(m, &x, tokens, n);
    }
}

static int32_t find(int32_t *into, int32_t i) {
    while (into[i] != i) i = into[i] = into[into[i]];
    return i;
}

/* Joins along the `remove` cheapest edges of list [n]; returns how many there were. */
static int32_t join(edges *x, int32_t n, int32_t remove, int32_t *into) {
    int32_t n_edges = 0;
    for (int32_t i = 0; i < n; i++) {
        n_edges += x->cost[x->list[i]] < INFINITY;
        x->minus[i] = -x->cost[x->list[i]];
    }
    if (n_edges < remove) remove = n_edges;
    ftki_select_top(x->minus, NULL, n, remove, x->chosen, x->keys);
    for (int32_t k = 0; k < remove; k++) {
        int32_t i = x->list[x->chosen[k]], a = find(into, i), b = find(into, x->other[i]);
        if (a < b) into[b] = a;
        else into[a] = b;
    }
    return remove;
}

int32_t ftki_match_pairs(const ftki_match *m, int32_t remove, int32_t *into, void *scratch) {
    edges x = lay_out(scratch, m->n);
    int32_t n = 0, removed = 0, block = m->block > 1 && m->block <= MAX_BLOCK ? m->block : 32;
    for (int32_t i = 0; i < m->n; i++) {
        into[i] = i;
        if (!is_protected(m, i)) x.list[n++] = i;
    }
    while (removed < remove && n > 1) {
        removed += join(&x, n, remove - removed, into);
        if (removed >= remove) break;
        int32_t left = 0;
        for (int32_t i = 0; i < n; i++)
            if (into[x.list[i]] == x.list[i]) x.list[left++] = x.list[i];
        n = left;
        int32_t step = m->pairing == FTK_PAIRING_BLOCK ? block : n;
        for (int32_t b = 0; b < n; b += step) link_tokens(m, &x, x.list + b, n - b < step ? n - b : step);
    }
    for (int32_t i = 0; i < m->n; i++) into[i] = find(into, i);
    return removed;
}
