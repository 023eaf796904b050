/* foreign: options of other programs that mean nothing here, or something else than ours. */
#ifndef ZINF_API_FOREIGN_H
#define ZINF_API_FOREIGN_H

/* What to do instead, as a sentence; NULL: nothing is known of the name. */
const char *foreign_remedy(const char *name);

#endif
