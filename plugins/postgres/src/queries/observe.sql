SELECT kind, eligibility_claim, fingerprint, status, response, answers, observed_at
FROM observe($1, $2, $3, $4, $5, $6, $7, $8, $9)
