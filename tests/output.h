/* output.h: where goes what tests write. With XNORD_TEST_LOG naming a file, stdout and stderr of
 * tests go there, so that a run that passes shows no errors that daemons under test were made to
 * report; of a suite that fails the runner shows what its failed tests wrote. Without it they stay
 * as they are. For the runner alone, which is one thread. */
#ifndef XN_TEST_OUTPUT_H
#define XN_TEST_OUTPUT_H

#include <stdbool.h>

/* Opens the file; false, with a line on stderr, where that fails. */
bool xn_output_open(void);
/* Around a suite: in between, what is written goes to the file. */
void xn_output_redirect(void);
void xn_output_restore(void);
/* To stdout: what the tests wrote that began and did not pass since the last redirect; all of the
 * suite's, where none is such. The last lines, if it is long. */
void xn_output_show(const char *suite);
/* The file's name, or NULL. */
const char *xn_output_path(void);

/* In a test's process, before and after it. */
void xn_output_test_begins(void);
void xn_output_test_passed(void);

#endif
