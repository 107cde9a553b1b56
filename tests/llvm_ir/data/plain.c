// SPDX-License-Identifier: Apache-2.0
// Plain C: globals that are neither externally initialized nor used, aliases, and a name that needs quotes.
double factor = 2.0;
static int hidden[4];
extern int away;
__attribute__((weak)) int weak_variable = 4;
__attribute__((used)) static int kept = 3;
struct S {
  char c;
  int i;
  void (*f)(struct S *);
} structure;

int f(int x) { return x + hidden[x & 3]++ + away; }
int variadic(const char *s, ...);
int g(struct S *q) {
  q->f(q);
  return variadic("x", 2);
}
int function_alias(struct S *q) __attribute__((alias("g")));
extern double variable_alias __attribute__((alias("factor")));
int odd(void) __asm__("odd name \"é");
int call_odd(void) { return odd(); }
