"""Questions to the DNS: who is asked and how, what is remembered, and how far an answer is proven."""
